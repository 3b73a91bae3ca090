"""A directory of messages that could not reach the store.

A file has the messages of one page, all for one queue, and is written whole: a temporary name, fsync, rename. Its name,
after the namespace and ``@``, is the instant of spooling and a random number. Whoever takes files in holds a lock, and
first gives each its place among all that were ever taken in from this directory, in its name: ``…+NUMBER.SENDER``. By
that the queue knows it again, however late (see ``intake.py``). A file that cannot be taken in ends with ``.refused``.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pollconsumer.core.errors import CannotCreate, PermissionDenied, StoreUnreachable
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.runtime.embedded.directory import (
    PRIVATE,
    SHARE,
    SHARED,
    cannot_create,
    check_directory,
    create_directory,
    take_lock,
)
from pollconsumer.store.queues.outbox_entry import pack, read_entry
from pollconsumer.store.queues.producer import pages_of

VERSION = 1
MOST_FILES = 10_000
ABANDONED_AFTER = 3600.0
"""Seconds after which a temporary file is one of a process that died."""
REFUSED = ".refused"
_FIX = f"make sure that it is yours alone; for several users, {SHARE}"
_ENTRY = re.compile(r"(?P<spooled>\d{13})-[0-9a-f]{16}(?:\+(?P<number>\d{1,16})\.(?P<sender>[0-9a-f]{16}))?")
_LEDGER = re.compile(rb"([0-9a-f]{16}) (\d{16})\n")
_ITS_OWN = {errno.EACCES, errno.EPERM, errno.ELOOP, errno.EISDIR, errno.ENXIO}
"""Errors of opening that tell of the file, and not of the process."""


class SpooledFile(NamedTuple):
    """A file of the spool. ``spooled``: when it was written, in epoch ms of its producer's clock. ``number``: its place
    among all that ``sender`` has sent; 0 if nobody began to take it in."""

    name: str
    spooled: int
    number: int = 0
    sender: str = ""


class SpoolState(NamedTuple):
    """How many files wait, since when the oldest does, in epoch ms, and how many cannot be taken in."""

    waiting: int
    oldest: int | None
    refused: int


class Unreadable(Exception):
    """A file is none that a producer wrote; the text says why."""


class SpoolLedger:
    """Numbers files. Whoever has it holds the spool's lock."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        found = _LEDGER.fullmatch(os.pread(descriptor, 64, 0))
        self.sender, self._last = (found[1].decode(), int(found[2])) if found else (os.urandom(8).hex(), 0)

    def numbers(self, count: int) -> range:
        """Numbers above all before. By the clock, too: the directory may be an older copy of itself."""
        first = max(self._last + 1, time.time_ns() // 1000)
        self._last = first + count - 1
        os.pwrite(self._descriptor, b"%b %016d\n" % (self.sender.encode(), self._last), 0)
        os.fsync(self._descriptor)  # GUARD no number twice
        return range(first, first + count)


class Spool:
    def __init__(self, directory: Path, namespace: str, *, shared: bool = False) -> None:
        """``shared``: the users of a group share it, as they do if it has the group's bit. It is made when it is first
        written to."""
        self.directory, self._prefix = directory, f"{namespace}@"
        with suppress(OSError):
            shared = shared or bool(directory.lstat().st_mode & stat.S_ISGID)
        self._access = (SHARED if shared else PRIVATE)._replace(what="spool", fix=SHARE if shared else _FIX)

    def check(self) -> None:
        """PermissionDenied if others may write there, or this user may not. A missing directory is made when it is
        needed."""
        if check_directory(self.directory, self._access) and not os.access(self.directory, os.W_OK | os.X_OK):
            raise PermissionDenied("spool is not writable", self.directory, self._access.fix)

    def put(self, messages: Sequence[NewMessage]) -> None:
        """Keep messages, their delays counted from now. StoreUnreachable if it is full, CannotCreate if it cannot be
        written, with the ids ``accepted`` before; PermissionDenied as of `check`."""
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
        if sum(1 for _ in self._entries()) >= MOST_FILES:
            fix = "no message is accepted until a launch reaches the store and takes some in"
            raise StoreUnreachable("store unreachable, and spool full", f"{MOST_FILES} files in {self.directory}", fix)
        now_ms = time.time_ns() // 1_000_000
        name = f"{self._prefix}{now_ms:013d}-{os.urandom(8).hex()}"
        head = json.dumps({"version": VERSION, "spooled": now_ms}).encode()
        unfinished = self.directory / f".{name}"
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    os.fchmod(descriptor, self._access.file)
                    file.write(head + b"\n" + pack(page, now_ms))
                    file.flush()
                    os.fsync(descriptor)  # GUARD whole before it has its name
                unfinished.rename(self.directory / name)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
            self._sync()
        except OSError as error:
            raise cannot_create(self.directory / name, error, "") from None

    def _sync(self) -> None:
        """Have renames of files outlast the machine."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _names(self) -> Iterator[os.DirEntry[str]]:
        with suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            yield from entries

    def _entries(self) -> Iterator[SpooledFile]:
        """The files that wait, in no order."""
        for entry in self._names():
            if entry.name.startswith(self._prefix):
                found = _ENTRY.fullmatch(entry.name, len(self._prefix))
                if found is not None:
                    number, sender = int(found["number"] or 0), found["sender"] or ""
                    yield SpooledFile(entry.name, int(found["spooled"]), number, sender)

    def state(self) -> SpoolState:
        self.check()
        spooled = [entry.spooled for entry in self._entries()]
        refused = sum(entry.name.startswith(self._prefix) and entry.name.endswith(REFUSED) for entry in self._names())
        return SpoolState(len(spooled), min(spooled, default=None), refused)

    def waits(self) -> bool:
        """Whether any file waits. Looks at the directory once."""
        return next(self._entries(), None) is not None

    @contextmanager
    def locked(self) -> Iterator[SpoolLedger | None]:
        """Hold the lock meanwhile; None if another process does. The lock ends with its process."""
        self.check()
        descriptor = take_lock(self.directory, self._access, f"{self._prefix}lock")
        if descriptor is None:
            yield None
            return
        try:
            yield SpoolLedger(descriptor)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that a handler has forked may have it, too
            os.close(descriptor)

    def files(self, ledger: SpoolLedger, most: int, left_out: set[str]) -> list[SpooledFile]:
        """Files to take in, in order: those that somebody began to take in, then at most ``most`` others, which are
        numbered now. ``left_out``: names of files that are not wanted."""
        found = sorted((each for each in self._entries() if each.name not in left_out), key=lambda each: each[1:])
        begun = sorted((each for each in found if each.number), key=lambda each: each.number)
        fresh = [each for each in found if not each.number][:most]
        if fresh:
            for at, (file, number) in enumerate(zip(fresh, ledger.numbers(len(fresh)), strict=True)):
                name = f"{file.name}+{number}.{ledger.sender}"
                (self.directory / file.name).rename(self.directory / name)
                fresh[at] = SpooledFile(name, file.spooled, number, ledger.sender)
            self._sync()  # GUARD numbered for good before it is sent
        return begun + fresh

    def read(self, file: SpooledFile) -> list[NewMessage]:
        """The messages of a file. Unreadable if it has none; OSError."""
        try:
            descriptor = os.open(self.directory / file.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as opened:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise Unreadable("no plain file")
                head, _, body = opened.read().partition(b"\n")
        except OSError as error:
            if error.errno not in _ITS_OWN:
                raise
            raise Unreadable(error.strerror or str(error)) from None
        try:
            version = json.loads(head)["version"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise Unreadable("it is not what a producer writes") from None
        entry = read_entry(file.sender, body)
        if version != VERSION or entry is None:
            raise Unreadable("a newer version wrote it")
        if not entry.messages or entry.ends or entry.opened:
            raise Unreadable("its messages are invalid")
        return [_aged(message, file.spooled) for message in entry.messages]

    def remove(self, file: SpooledFile) -> None:
        with suppress(FileNotFoundError):
            (self.directory / file.name).unlink()

    def refuse(self, file: SpooledFile) -> str:
        """Keep a file for a person, who may rename it. Returns its new name."""
        name = f"{file.name.partition('+')[0]}{REFUSED}"
        (self.directory / file.name).rename(self.directory / name)
        return name

    def clear(self) -> None:
        """Remove what producers left behind that died while they wrote."""
        for entry in self._names():
            with suppress(FileNotFoundError):
                if entry.name.startswith(f".{self._prefix}") and time.time() - entry.stat().st_mtime > ABANDONED_AFTER:
                    Path(entry.path).unlink()


def _aged(message: NewMessage, spooled: int) -> NewMessage:
    """``message``, whose expiry counts from when it was spooled or, if that is later, due."""
    if not message.lifetime:
        return message
    age = time.time_ns() // 1_000_000 - max(spooled, int(message.due or 0))
    return message._replace(lifetime=max(1, message.lifetime - max(0, age)))
