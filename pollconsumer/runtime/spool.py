"""The spool: a directory of messages that could not reach the store.

A file has the messages of one page, all for one queue, in the form of an outbox entry. It appears whole: it is written
under a temporary name, then fsync, then rename. Its name consists of the namespace, ``@``, the time of writing and a
random number. A process that sends files to the store holds a lock. It first numbers each file, by a rename:
``…+NUMBER.SENDER``. Numbers rise, so that a queue recognises a file that it has received. A file that cannot be sent
gets a name that ends with ``.refused``.

Each file is received once, even if processes die in between. It gets its number before it is first sent, files are sent
in the order of their numbers, and each queue remembers the last number that it received from a sender. So a later
process may send a numbered file again. A file is removed once the store has its messages."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pollconsumer.core.errors import CannotCreate, NodeLost, PermissionDenied, PollConsumerError, StoreUnreachable
from pollconsumer.core.events import Event, SpoolFileRefused, SpoolUnusable
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.notation.digests import sha1
from pollconsumer.runtime.embedded.directory import (
    PRIVATE,
    SHARE,
    SHARED,
    cannot_create,
    check_directory,
    create_directory,
    take_lock,
)
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.runtime.system.process import boot_id
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.outbox import pack, read_entry
from pollconsumer.store.queues.producer import Origin, Producer, pages_of

MOST_FILES, MOST_BYTES = 10_000, 1 << 30
ABANDONED_AFTER = 3600.0
"""Seconds after which an unfinished file counts as abandoned: the process that wrote it must have died."""
REFUSED = ".refused"
NOT_OURS = "it was not written by a producer"
_FIX = f"make sure that it is yours alone; for several users, {SHARE}"
_ENTRY = re.compile(r"(?P<spooled>\d{16})-[0-9a-f]{16}(?:\+(?P<number>\d{1,16})\.(?P<sender>[0-9a-f]{16}))?")
_LEDGER = re.compile(rb"([0-9a-f]{16}) (\d{16})\n")
_DAMAGED = {errno.EIO, errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EIO)}
_ITS_OWN = {errno.EACCES, errno.EPERM, errno.ELOOP, errno.EISDIR, errno.ENXIO, *_DAMAGED}
"""Errors that concern only the file which was opened or read. They last, until a person mends the file."""
LOOK_EVERY = 1.0


class SpooledFile(NamedTuple):
    """A file in the spool. ``number``: its place in the order in which ``sender``, an id of this directory, sends
    files; 0 before it is numbered. ``spooled``: when it was written, in epoch µs of its producer's clock."""

    number: int
    spooled: int
    name: str
    sender: str


class SpoolState(NamedTuple):
    """How many files wait to be sent, when the oldest was written (epoch ms), and how many cannot be sent."""

    waiting: int
    oldest: int | None
    refused: int


class Unreadable(Exception):
    """A file has no messages written by a producer of this version. The error's text says what is wrong."""


class Spool:
    def __init__(self, directory: Path, namespace: str, *, shared: bool = False) -> None:
        """``shared``: a group's users share the directory, as with the setgid bit. The first write creates it."""
        self.directory, self._prefix = directory, f"{namespace}@"
        with suppress(OSError):
            shared = shared or bool(directory.lstat().st_mode & stat.S_ISGID)
        self._access = (SHARED if shared else PRIVATE)._replace(what="spool", fix=SHARE if shared else _FIX)

    def check(self) -> None:
        """Raise PermissionDenied if other users may write into the directory, or this user may not. A directory
        that does not exist is accepted: `put` creates it."""
        if check_directory(self.directory, self._access) and not os.access(self.directory, os.W_OK | os.X_OK):
            raise PermissionDenied("spool is not writable", self.directory, self._access.fix)

    def put(self, messages: Sequence[NewMessage]) -> None:
        """Write messages to files; delays count from now. StoreUnreachable if the spool is full, CannotCreate if it
        cannot be written: the error's ``accepted`` has the ids written before. PermissionDenied as in `check`."""
        create_directory(self.directory, self._access)
        self.check()
        accepted = list[str]()
        try:
            for page in pages_of(messages):
                self._write(page)
                accepted += [message.id for message in page]
        except (StoreUnreachable, CannotCreate) as error:
            error.accepted = accepted
            raise

    def _write(self, page: Sequence[NewMessage]) -> None:
        sizes = list[int]()
        for name in self._names(self._prefix):  # including quarantined ones
            with suppress(FileNotFoundError):  # a launch has just taken it in
                sizes.append((self.directory / name).lstat().st_size)
        files, size = len(sizes), sum(sizes)
        if files >= MOST_FILES or size >= MOST_BYTES:
            fix = "no message is accepted until a launch reaches the store and empties the spool"
            held = f"{f'{files} files' if files >= MOST_FILES else f'{size} bytes'} in {self.directory}"
            raise StoreUnreachable("store unreachable, and spool full", held, fix)
        now = time.time_ns() // 1000
        name = f"{self._prefix}{now:016d}-{os.urandom(8).hex()}"
        unfinished = self.directory / f".{name}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(unfinished, flags, 0o600), "wb") as file:
                os.fchmod(file.fileno(), self._access.file)
                file.write(pack(page, now // 1000))
                file.flush()
                os.fsync(file.fileno())  # GUARD whole before it has its name
            unfinished.rename(self.directory / name)
            self._sync()
        except OSError as error:
            for written in (unfinished, self.directory / name):
                with suppress(OSError):
                    written.unlink()
            raise cannot_create(self.directory / name, error, "") from None

    def _sync(self) -> None:
        """Write the directory itself to disk, so that renames survive a crash of the machine. Nothing is done on a file
        system, as some of FUSE, that cannot sync a directory."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)

    def _names(self, beginning: str) -> Iterator[str]:
        with suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            yield from (entry.name for entry in entries if entry.name.startswith(beginning))

    def _entries(self) -> Iterator[SpooledFile]:
        """The files to send, unsorted."""
        for name in self._names(self._prefix):
            if found := _ENTRY.fullmatch(name, len(self._prefix)):
                yield SpooledFile(int(found["number"] or 0), int(found["spooled"]), name, found["sender"] or "")

    def state(self) -> SpoolState:
        self.check()
        spooled = [entry.spooled for entry in self._entries()]
        refused = sum(name.endswith(REFUSED) for name in self._names(self._prefix))
        return SpoolState(len(spooled), min(spooled) // 1000 if spooled else None, refused)

    def waits(self) -> bool:
        """Whether there is any file to send."""
        return any(self._entries())

    @contextmanager
    def taken(self) -> Iterator[list[SpooledFile]]:
        """Hold the lock within the block; a dying process frees it. Yields the files to send, numbered and in order.
        Yields an empty list if another process holds the lock."""
        self.check()
        descriptor = take_lock(self.directory, self._access, f"{self._prefix}lock")
        if descriptor is None:
            yield []
            return
        try:
            yield self._numbered(descriptor)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that a handler has forked may hold it, too
            os.close(descriptor)

    def _numbered(self, ledger: int) -> list[SpooledFile]:
        """Number the files that have no number. Returns all files to send, in order. ``ledger``: the locked file."""
        found = sorted(self._entries())
        begun, fresh = [each for each in found if each.number], [each for each in found if not each.number]
        if fresh:
            sender, numbers = _reserved(ledger, len(fresh))
            for file, number in zip(fresh, numbers, strict=True):
                name = f"{file.name}+{number}.{sender}"
                (self.directory / file.name).rename(self.directory / name)
                begun.append(SpooledFile(number, file.spooled, name, sender))
            self._sync()  # GUARD numbered for good before it is sent
        return begun

    def read(self, file: SpooledFile) -> list[NewMessage]:
        """The messages of a file. Raises Unreadable if it has none, and OSError if it cannot be read now."""
        entry = read_entry(file.sender, self._content(file.name))
        if entry is None:
            raise Unreadable("a newer version wrote it")
        if entry.problem:
            raise Unreadable(f"{NOT_OURS}: {entry.problem}")
        if not entry.messages or entry.ends or entry.opened:
            raise Unreadable(NOT_OURS)
        return [_aged(message, file.spooled // 1000) for message in entry.messages]

    def _content(self, name: str) -> bytes:
        try:
            descriptor = os.open(self.directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as opened:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise Unreadable("no plain file")
                return opened.read()
        except OSError as error:
            if error.errno not in _ITS_OWN:
                raise
            raise Unreadable(error.strerror or str(error)) from None

    def refused(self) -> Iterator[tuple[Path, bytes, str]]:
        """The files that cannot be sent: path, content, and why the content cannot be read (empty if it can)."""
        self.check()
        for name in sorted(self._names(self._prefix)):
            if name.endswith(REFUSED):
                content, reason = b"", ""
                try:
                    content = self._content(name)
                except (OSError, Unreadable) as error:
                    reason = str(error)
                yield self.directory / name, content, reason

    def remove(self, file: SpooledFile) -> None:
        (self.directory / file.name).unlink(missing_ok=True)

    def refuse(self, file: SpooledFile) -> str:
        """Rename a file so that it is not sent, and stays for a person to look at. Returns its new name."""
        name = f"{file.name.partition('+')[0]}{REFUSED}"
        (self.directory / file.name).rename(self.directory / name)
        return name

    def clear(self) -> None:
        """Remove files of producers that died while writing. After all files, it raises the first OSError."""
        problems = list[OSError]()
        for name in self._names(f".{self._prefix}"):
            file = self.directory / name
            try:
                if time.time() - file.lstat().st_mtime > ABANDONED_AFTER:
                    file.unlink(missing_ok=True)
            except OSError as error:  # GUARD what is no file does not keep others
                problems.append(error)
        if problems:
            raise problems[0]


def _reserved(ledger: int, count: int) -> tuple[str, range]:
    """The sender's id, and ``count`` new numbers, all greater than earlier ones. They are also at least the clock's
    microseconds, in case the directory was restored from an older copy. Each copy of
    a directory has an id of its own: if two shared an id, queues would skip the lower numbers."""
    found = _LEDGER.fullmatch(os.pread(ledger, 64, 0))
    stored, last = (found[1].decode(), int(found[2])) if found else (os.urandom(8).hex(), 0)
    first = max(last + 1, time.time_ns() // 1000)
    os.pwrite(ledger, b"%b %016d\n" % (stored.encode(), first + count - 1), 0)
    os.fsync(ledger)  # GUARD no number twice
    file = os.fstat(ledger)  # containers of one image share the inode, but not the device
    place = f"{stored} {boot_id()} {file.st_dev} {file.st_ino}"
    return sha1(place.encode())[:16], range(first, first + count)


def _aged(message: NewMessage, spooled: int) -> NewMessage:
    """``message`` with a lifetime that counts from ``spooled`` (epoch ms), or from its due time if that is later."""
    if not message.lifetime:
        return message
    age = time.time_ns() // 1_000_000 - max(spooled, int(message.due or 0))
    return message._replace(lifetime=max(1, message.lifetime - max(0, age)))


class Intake:
    def __init__(self, spool: Spool, producer: Producer, emit: Callable[[Event], None]) -> None:
        self._spool, self._producer, self._emit = spool, producer, emit
        self._ended, self.taken_in = threading.Event(), threading.Event()
        """``taken_in`` is set after the first look."""
        self._reported = set[str]()

    def begin(self) -> None:
        """Send the files in the spool, and those that come, in a thread until `end`."""
        try:
            start_thread("spool", self._serve)
        except RuntimeError:  # no thread can be started: the next launch takes in later files
            self.look()

    def end(self) -> None:
        self._ended.set()

    def _serve(self) -> None:
        self.look()
        self._attempt(self._spool.clear)
        while not self._ended.wait(LOOK_EVERY):
            self.look()

    def look(self) -> None:
        """Send the files in the spool."""
        try:
            self._attempt(self._take_in)
        finally:
            self.taken_in.set()

    def _attempt(self, act: Callable[[], object]) -> None:
        """Call ``act``. Its error is logged once, unless the store was unreachable; the next look tries again."""
        try:
            act()
        except StoreUnreachable:
            pass
        except (PollConsumerError, OSError) as error:  # GUARD an odd directory ends no thread
            self._report(error)

    def _take_in(self) -> None:
        """Send all files, in order. If a queue refuses a file, its later files wait: a queue skips a file whose number
        is not above the last that it received. OSError if a file cannot be read now: its queue is unknown, so all files
        behind it wait."""
        if not self._spool.waits():
            return
        blocked = set[str]()
        with self._spool.taken() as files:
            for file in files:
                if self._ended.is_set():
                    return
                self._take(file, blocked)

    def _take(self, file: SpooledFile, blocked: set[str]) -> None:
        try:
            messages = self._spool.read(file)
        except Unreadable as problem:
            self._refuse(file, str(problem))
            return
        queue = messages[0].queue
        if queue in blocked or not self._send(file, messages):
            blocked.add(queue)

    def _send(self, file: SpooledFile, messages: Sequence[NewMessage]) -> bool:
        """Send the messages of a file. Returns False if their queue did not accept them."""
        origin, conflicts = Origin(f"spool-{file.sender}", file.number, 0), list[NewMessage]()
        try:
            outbox.send_alone(self._producer, origin, messages, conflicts.append)
        except NodeLost:
            return False
        except StoreUnreachable:
            raise
        except PollConsumerError as error:
            self._report(error)
            return False
        try:
            if conflicts:
                self._refuse(file, f"{', '.join(each.id for each in conflicts)} has another handler or payload")
            else:
                self._spool.remove(file)  # GUARD removed once it is accepted
        except OSError as error:
            self._report(error)  # GUARD an accepted file that cannot be moved or removed holds up no other
        return True

    def _refuse(self, file: SpooledFile, reason: str) -> None:
        self._emit(SpoolFileRefused(str(self._spool.directory / self._spool.refuse(file)), reason))

    def _report(self, problem: PollConsumerError | OSError) -> None:
        """Report a problem, unless one with the same text was reported before."""
        kind = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
        if kind not in self._reported:
            self._reported.add(kind)
            self._emit(SpoolUnusable(str(self._spool.directory), str(problem)))
