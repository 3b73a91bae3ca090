"""Runs a program as a handler: its payload on standard input, its output captured, its timeout enforced.

Standard input is a file, since a program need not read it, and a pipe would block then. Most of the output is
discarded, so that it cannot fill our memory.

Each running program has a file, its note, which names its message. Another launch reads the notes to find and kill the
programs that a dead launch has left behind. A note is locked by an ``flock`` on a descriptor that the program and its
children inherit. So it is locked exactly as long as any of them lives, even if the launch dies. The program of a dead
launch is killed before its message is handled again: its outcome is lost, and a message must not run twice
concurrently.

A process is killed only if it is identified as the program or its child: by pid and start time, by the open note in the
program's session, or by the inherited lock of the note. A pid alone may have been reused."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pollconsumer.core.messages.message import variable_of
from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.notation.instants import ceil_ms, iso_of
from pollconsumer.core.retry import Fatal, HandlerTimeout, NotBegun, Stopped
from pollconsumer.runtime.children.pool import LOOK_EVERY, ChildProcess
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery
from pollconsumer.runtime.handling.handler import TRACE, signal_name
from pollconsumer.runtime.session.settlements import MAX_RESULT_BYTES
from pollconsumer.runtime.system.own_files import is_ours, make_directory
from pollconsumer.runtime.system.process import birth
from pollconsumer.runtime.system.system_limits import start_refused
from pollconsumer.store.client.own_descriptors import above_standard

KILLED_WITHIN = 5.0
"""Seconds within which a killed process must exit."""
UNKNOWN_FOR = 0.2
"""Seconds to wait for the end of processes that have a note open but are not killed, since they are not identified."""
LOOK_AGAIN_AFTER = 0.01
"""Seconds between two checks whether a killed process has ended."""
UNFINISHED, STALE_AFTER = ".", 3600.0
"""The prefix of an unfinished note's name; and the age, in seconds, from which such a note is removed as abandoned."""


class ProgramAlive(Exception):
    """The program of an earlier attempt at the same message still runs, and this process cannot kill it."""


class ProgramProcess(NamedTuple):
    pid: int
    birth: str | None

    def is_alive(self) -> bool:
        """Whether the process is alive. If its birth is unknown, any process with its pid counts."""
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
    """The content of a note. ``program``: the process, which leads its own session; None if it was not recorded yet."""

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
        """Whether the program or a child of it is alive. A child holds the lock of the note."""
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
        """Kill the program's process group; if the program has ended, its identified children. Returns whether any
        process was killed."""
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
        """The pids of processes of ``session``, which the program leads, that have the note open. While one lives, the
        session's id is not reused. If ``session`` is None, the launch died before it recorded its program: then the
        pids of all session leaders that have inherited the note's lock. A mere reader of the note has no lock."""
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
    """Writes the note of one program. It exists from before the program's start until its end."""

    def __init__(self, path: Path | None = None, descriptor: int | None = None) -> None:
        self.path, self.descriptor = path, descriptor
        """The note's path, and the descriptor that the program will inherit; both None if there is no note."""

    def started(self, pid: int) -> None:
        """Record the pid in the note. From now on only the program and its children hold the note's lock."""
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
    """The notes in ``directory``. If it is not writable, ``warn`` is called once, and programs run without notes. If it
    is None, they run without notes and without the warning."""

    def __init__(self, directory: Path | None, warn: Callable[[str], None]) -> None:
        self._directory, self._warn = directory or Path(os.devnull), warn
        self._usable: bool | None = None if directory else False

    def begin(self, delivery: Delivery) -> ProgramNote:
        """Write a note for a program that is about to be started, and end the program of an earlier attempt. The launch
        writes before it reads, so of two concurrent launches at least one sees the note of the other.

        Raises ProgramAlive if the earlier program cannot be killed, or belongs to a newer launch."""
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
        """Kill the programs of dead launches, and those of the process ``launch``. That is this process, or a launch
        that is dying: it closes its files before it counts as dead."""
        for noted in [noted for path in self._paths() if (noted := Noted.read(path))]:
            if noted.launch.pid == launch or not noted.launch.is_alive():
                self._end(noted)

    def _end(self, noted: Noted) -> bool:
        """Kill the program of ``noted`` if it lives, and remove the note. Returns False if that was impossible."""
        survived = alive = noted.is_alive()
        until = time.monotonic() + KILLED_WITHIN
        while alive and time.monotonic() < until:
            if not noted.kill():
                until = min(until, time.monotonic() + UNKNOWN_FOR)
            time.sleep(LOOK_AGAIN_AFTER)
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


PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR")
PASSED_ON_PREFIXES = ("LC_", "XDG_")
"""Programs inherit variables with these prefixes, besides those in `PASSED_ON`. None of them holds secrets."""
KEPT_BYTES = 8192
"""How many bytes of the output's beginning are kept, and how many of its end."""
CHUNK, MOST_CHUNKS = 65536, 32
"""Bytes per read; and the most reads after the program's exit, since its children may print on and on."""
LAST_LINES, LAST_CHARACTERS, LAST_LINE_CHARACTERS = 20, 2000, 400
LONGEST_WAIT = 0.5
"""Seconds between two checks of whether the message was asked to stop."""


class Output:
    """A program's output, of which the beginning and the end are kept."""

    def __init__(self) -> None:
        self._first, self._last, self._size = bytearray(), b"", 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if room := KEPT_BYTES - len(self._first):
            self._first += data[:room]
            data = data[room:]
        self._last = (self._last + data)[-KEPT_BYTES:]

    def text(self) -> str:
        left_out = self._size - len(self._first) - len(self._last)
        between = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        return (bytes(self._first) + between + self._last).decode("utf-8", "replace")

    def head(self) -> str:
        return f"{self._first.decode('utf-8', 'replace')}\n[{self._size - len(self._first)} bytes left out]\n"

    def last_lines(self) -> str:
        """The last `LAST_LINES` lines that are not blank."""
        lines = [line for line in self.text().splitlines() if line.strip()]
        return "\n".join(lines[-LAST_LINES:])[-LAST_CHARACTERS:]

    def last_line(self) -> str:
        return self.last_lines().rpartition("\n")[2][-LAST_LINE_CHARACTERS:]


class RunningProgram(ChildProcess):
    """A started program. Its output is read from the pipe ``outlet`` while it runs."""

    def __init__(self, argv: Sequence[str], passed: Collection[int], outlet: int, **how: Any) -> None:
        super().__init__(argv, passed, **how)
        self.output = Output()
        self._outlet, self._silent = outlet, False
        self._poll = select.poll()
        os.set_blocking(outlet, False)
        for each in filter(None, (outlet, self.exit_handle)):
            self._poll.register(each, select.POLLIN)

    def wait(self, seconds: float | None, *, until_silent: bool = False, unless: Callable[[], bool] = bool) -> bool:
        """Read the output until the program has exited. With ``until_silent``, also wait until no process has the
        output open. Returns False after ``seconds``, or as soon as ``unless`` returns True."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self.has_ended() or (until_silent and not self._silent):
            left = LONGEST_WAIT if until is None else until - time.monotonic()
            if left <= 0 or unless():
                return False
            self._attend(min(left, LONGEST_WAIT))
        return True

    def end(self, *, kill: bool) -> int | None:
        """Wait for the program's exit, read the rest of its output, and return its exit code as `ChildProcess.reap`
        does. With ``kill``, first kill the process group."""
        if kill:
            self.signal(signal.SIGKILL)
        while not self.has_ended():
            self._attend(LONGEST_WAIT)
        if not self._silent:
            for _ in range(MOST_CHUNKS):
                if not self._read():
                    break
        os.close(self._outlet)
        return self.reap()

    def _attend(self, seconds: float) -> None:
        """Wait until the program prints or exits, at most ``seconds``, and read what it printed."""
        if self.exit_handle is None:
            seconds = min(seconds, LOOK_EVERY)
        for descriptor, _ in self._poll.poll(ceil_ms(seconds)):
            if descriptor == self._outlet:
                self._read()
            else:
                self._poll.unregister(descriptor)

    def _read(self) -> bool:
        try:
            data = os.read(self._outlet, CHUNK)
        except BlockingIOError:
            return False
        self.output.add(data)
        if not data:
            self._silent = True
            self._poll.unregister(self._outlet)
        return bool(data)


class CommandFailed(Exception):
    """The program could not be started, exited with a code other than 0, or exceeded its timeout. ``lines``: its last
    lines of output, stored instead of a traceback; empty unless there are several."""

    def __init__(self, problem: str, lines: str = "") -> None:
        super().__init__(problem)
        vars(self)[TRACE] = lines


class FatalExit(CommandFailed, Fatal):
    """The program exited with a code for which no retry follows, as the setting ``fatal`` says."""


class Command:
    """The function of a handler that is a program. ``argv`` begins with the program's absolute path. Durations are in
    seconds.

    At the ``timeout``, or at a stop, its process group gets SIGTERM, and ``kill_after`` seconds later SIGKILL."""

    def __init__(
        self,
        argv: Sequence[str],
        programs: Programs,
        *,
        directory: Path,
        timeout: float | None = None,
        kill_after: float,
        fatal: Collection[int] = (),
        environment: Collection[str] = (),
    ) -> None:
        self.argv, self.timeout, self.kill_after = tuple(argv), timeout, kill_after
        self._programs, self._directory = programs, directory
        self._fatal, self._names = frozenset(fatal), frozenset((*PASSED_ON, *environment))

    def with_timeout(self, seconds: float | None) -> Command:
        other = copy(self)
        other.timeout = seconds
        return other

    def __call__(self, payload: dict[str, Any], context: LaunchContext | None) -> dict[str, Any]:
        """Run the program until it exits. Returns its exit code and output. Raises CommandFailed, ProgramAlive, Stopped
        or NotBegun."""
        assert context is not None
        note = self._programs.begin(context.delivery)
        try:
            if self.timeout is not None:
                context.limit(self.timeout)
            try:
                running = self._start(payload, context, note)
            except OSError as error:  # the system refuses a process; a missing program raises another error
                raise NotBegun(start_refused(error)) from None
            try:
                in_time = running.wait(self.timeout, unless=lambda: context.stop_asked)
                if not in_time:
                    running.signal(signal.SIGTERM)
                    running.wait(self.kill_after, until_silent=True)
            except BaseException:
                in_time = False
                raise
            finally:
                code = running.end(kill=not in_time)
        finally:
            note.close()
        if not in_time and context.stop_asked:
            raise Stopped(running.output.last_line())
        return self._outcome(code, running.output, in_time=in_time)

    def _start(self, payload: dict[str, Any], context: LaunchContext, note: ProgramNote) -> RunningProgram:
        stdin = _file_of(payload)
        outlet, inlet = os.pipe()
        try:
            running = RunningProgram(
                self.argv,
                () if note.descriptor is None else (note.descriptor,),
                outlet,
                stdin=stdin,
                stdout=inlet,
                stderr=inlet,
                cwd=self._directory,
                env=self._environment(context),
            )
        except OSError as error:
            os.close(outlet)
            if error.filename is None:
                raise
            raise CommandFailed(f"cannot start {error.filename or self.argv[0]}: {error.strerror}") from None
        except BaseException:
            os.close(outlet)
            raise
        finally:
            os.close(stdin)
            os.close(inlet)
        note.started(running.pid)
        return running

    def _environment(self, context: LaunchContext) -> dict[str, str]:
        left = context.time_left()
        passed_on = {
            name: value
            for name, value in os.environ.items()
            if name in self._names or name.startswith(PASSED_ON_PREFIXES)
        }
        headers = {f"POLLCONSUMER_HEADER_{variable_of(name)}": value for name, value in context.headers.items()}
        message = {
            "POLLCONSUMER_MESSAGE_ID": context.id,
            "POLLCONSUMER_HANDLER": context.handler,
            "POLLCONSUMER_QUEUE": context.queue,
            "POLLCONSUMER_ATTEMPT": str(context.attempt),
            "POLLCONSUMER_GENERATION": str(context.generation),
            "POLLCONSUMER_FENCE": str(context.fence),
            "POLLCONSUMER_IDEMPOTENCY_KEY": context.idempotency_key,
            "POLLCONSUMER_DEADLINE": iso_of(datetime.now(UTC) + timedelta(seconds=left)),
            "POLLCONSUMER_SECONDS_LEFT": str(int(left)),
        }
        return passed_on | headers | message

    def _outcome(self, code: int | None, output: Output, *, in_time: bool) -> dict[str, Any]:
        if not in_time:
            how = str(HandlerTimeout(self.timeout or 0.0, "from its timeout or consumer.handler_limit"))
        elif code == 0:
            result = {"exit_code": 0, "output": output.text()}
            if len(json.dumps(result, ensure_ascii=False).encode()) > MAX_RESULT_BYTES:
                result["output"] = output.head()
            return result
        elif code is None:
            how = "exit code unknown, as something else here waited for its end"
        else:
            how = f"exit code {code}" if code > 0 else f"killed by {signal_name(-code)}"
        last = output.last_line()
        kind = FatalExit if in_time and code in self._fatal else CommandFailed
        lines = output.last_lines()
        raise kind(f"{how}: {last}" if last else how, lines if lines != last else "")


def _file_of(payload: dict[str, Any]) -> int:
    """A descriptor from which the program reads ``payload`` as one line of JSON. It leads to a file: writing to a pipe
    would block if the program did not read."""
    try:
        line = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # a lone surrogate, which must be escaped
        line = json.dumps(payload, separators=(",", ":")).encode()
    try:
        descriptor = os.memfd_create("payload")
    except (AttributeError, OSError):
        from tempfile import TemporaryFile

        with TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        view = memoryview(line + b"\n")
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
