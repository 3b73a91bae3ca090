"""Notes of running programs. With them others find and kill the programs that a dead launch has left behind.

Each program has a file that names its message. The file is locked by an ``flock`` on a descriptor that the program and
its children inherit. So it is locked exactly as long as any of them lives, even if the launch dies. The program of a
dead launch is killed before its message is handled again: its outcome is lost, and a message must not run twice
concurrently.

A process is killed only if it is identified: by pid and start time, by the open note in the program's session, or by
the inherited lock of the note. A pid alone may have been reused.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pollconsumer.core.notation.digests import sha256
from pollconsumer.runtime.handling.delivery import Delivery
from pollconsumer.runtime.system.own_files import is_ours, make_directory
from pollconsumer.runtime.system.process import birth
from pollconsumer.store.client.own_descriptors import above_standard

KILLED_WITHIN = 5.0
"""A killed process has so many seconds to exit."""
UNKNOWN_FOR = 0.2
"""Unidentified holders of a note have so many seconds to release it."""
LOOK_EVERY = 0.01
UNFINISHED, STALE_AFTER = ".", 3600.0
"""Prefix of unfinished notes; and after how many seconds such a note counts as abandoned."""


class ProgramAlive(Exception):
    """The program of an earlier attempt at the same message is alive, and cannot be killed by this process."""


class ProgramProcess(NamedTuple):
    pid: int
    birth: str | None

    def is_alive(self) -> bool:
        """Whether the process is alive. Without start times, any process with its pid counts as alive."""
        if self.birth is not None:
            return birth(self.pid) == self.birth
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


class Noted(NamedTuple):
    """The content of a note. ``program`` leads its own session. It is None until the program was started."""

    path: Path
    message: str
    fence: int
    launch: ProgramProcess
    program: ProgramProcess | None

    @classmethod
    def read(cls, path: Path) -> Noted | None:
        """The note at ``path``; None if it is gone or corrupt."""
        try:
            first, second, *_ = path.read_bytes().split(b"\n")
            content = json.loads(first)
            program = ProgramProcess(*json.loads(second)) if second else None
            return cls(
                path, str(content["message"]), int(content["fence"]), ProgramProcess(*content["launch"]), program
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def is_alive(self) -> bool:
        """Whether the program is alive, or a child of it, which then holds the lock of the note."""
        if self.program is not None and self.program.birth is not None and self.program.is_alive():
            return True
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def kill(self) -> bool:
        """Kill the program's group, or those children that are identified. Returns whether any process was killed."""
        killed = False
        with suppress(ProcessLookupError, PermissionError):
            if self.program is None:
                for pid in self._holders(None):
                    os.killpg(pid, signal.SIGKILL)
                    killed = True
            elif self.program.birth is not None:
                if self.program.is_alive():
                    os.killpg(self.program.pid, signal.SIGKILL)
                    return True
                for pid in self._holders(self.program.pid):
                    os.kill(pid, signal.SIGKILL)
                    killed = True
        return killed

    def _holders(self, session: int | None) -> Iterator[int]:
        """The processes of the program's ``session`` that have the note open. While one lives, the id of the session is
        not reused. If the launch died before it recorded its program, there is no session: then the leaders of sessions
        that have inherited the lock of the note, which a process that merely reads the note has not."""
        with suppress(OSError):
            ours = self.path.stat()
            for process in [path for path in Path("/proc").iterdir() if path.name.isdecimal()]:
                pid = int(process.name)
                with suppress(OSError):
                    if os.getsid(pid) == (session or pid) and any(
                        os.path.samestat(ours, opened.stat())
                        and (session or b"FLOCK" in (process / "fdinfo" / opened.name).read_bytes())
                        for opened in (process / "fd").iterdir()
                    ):
                        yield pid


class ProgramNote:
    """The note of one program, from before its start until its end."""

    def __init__(self, path: Path | None = None, descriptor: int | None = None) -> None:
        self.path, self.descriptor = path, descriptor
        """The path of the note, and the descriptor that the program will inherit. Both are None without a note."""

    def started(self, pid: int) -> None:
        """Record the program. From now on the program holds the note."""
        if self.descriptor is not None:
            with suppress(OSError):  # the disk is full: the lock remains
                line = json.dumps(ProgramProcess(pid, birth(pid))) + "\n"
                os.pwrite(self.descriptor, line.encode(), os.fstat(self.descriptor).st_size)
            self._close_descriptor()

    def close(self) -> None:
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink()
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class Programs:
    """The notes in ``directory``. If the directory is not writable, programs run without notes, after one warning. If
    it is None, they run without notes, and without a warning."""

    def __init__(self, directory: Path | None, warn: Callable[[str], None]) -> None:
        self._directory, self._warn = directory or Path(os.devnull), warn
        self._usable: bool | None = None if directory else False

    def begin(self, delivery: Delivery) -> ProgramNote:
        """A note for a program that is about to be started. It is written before others are read. So of two concurrent
        launches at least one sees the other's note.

        StillRunning if the program of an earlier attempt cannot be killed, or belongs to a newer launch.
        """
        digest = sha256(f"{delivery.queue}\n{delivery.id}".encode(errors="surrogatepass"))[:32]
        note = self._make(f"{digest}-{os.urandom(8).hex()}", delivery)
        try:
            for path in self._paths(digest):
                if path != note.path and (earlier := Noted.read(path)):
                    if earlier.launch.is_alive() and earlier.fence >= delivery.fence:
                        raise ProgramAlive("another launch handles it")
                    if not self._end(earlier):
                        raise ProgramAlive(f"the program of an earlier attempt: {_named(earlier)}")
        except BaseException:
            note.close()
            raise
        return note

    def clear(self, launch: int | None = None) -> None:
        """Kill the programs of dead launches, and of ``launch``, which is exiting: the caller has seen that it closed
        its files, which a dying process does before it counts as dead."""
        for noted in [noted for path in self._paths() if (noted := Noted.read(path))]:
            if noted.launch.pid == launch or not noted.launch.is_alive():
                self._end(noted)

    def _end(self, noted: Noted) -> bool:
        """Kill the program if it is alive, and remove its note. False if it could not be killed."""
        survived = alive = noted.is_alive()
        until = time.monotonic() + KILLED_WITHIN
        while alive and time.monotonic() < until:
            if not noted.kill():
                until = min(until, time.monotonic() + UNKNOWN_FOR)
            time.sleep(LOOK_EVERY)
            alive = noted.is_alive()
        if survived:
            done = "it cannot be killed from here, its message waits" if alive else "killed, its outcome would be lost"
            self._warn(f"program of message {noted.message} still running: {_named(noted)}; {done}")
        if not alive:
            with suppress(OSError):
                noted.path.unlink()
        return not alive

    def _make(self, name: str, delivery: Delivery) -> ProgramNote:
        launch = ProgramProcess(os.getpid(), birth(os.getpid()))
        content = {"message": delivery.id, "fence": delivery.fence, "launch": launch}
        path, unfinished = self._directory / name, self._directory / (UNFINISHED + name)
        try:
            if not self._is_usable():
                return ProgramNote()
            with above_standard():  # else the program's stdio would replace the note
                descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                os.write(descriptor, json.dumps(content).encode() + b"\n")
                unfinished.rename(path)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            self._abandon(error.strerror or str(error))
            return ProgramNote()
        return ProgramNote(path, descriptor)

    def _paths(self, prefix: str = "") -> Iterator[Path]:
        try:
            if not self._is_usable():
                return
            for path in list(self._directory.iterdir()):
                if path.name.startswith(UNFINISHED):
                    with suppress(OSError):
                        if path.stat().st_mtime < time.time() - STALE_AFTER:
                            path.unlink()
                elif path.name.startswith(prefix):
                    yield path
        except OSError as error:
            self._abandon(error.strerror or str(error))

    def _is_usable(self) -> bool:
        if self._usable is None:
            make_directory(self._directory)
            self._usable = is_ours(self._directory)
            if not self._usable:
                self._abandon("others can write there")
        return self._usable

    def _abandon(self, reason: str) -> None:
        self._usable = False
        fix = "set XDG_STATE_HOME to a directory of your own"
        self._warn(f"running programs cannot be noted in {self._directory}: {reason}; {fix}")


def _named(noted: Noted) -> str:
    return "pid unknown" if noted.program is None else f"pid {noted.program.pid}"
