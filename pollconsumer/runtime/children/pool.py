"""The processes in which isolated handlers run, so that they can be killed.

Each slot that handles an isolated message has one process, which is started when it is first needed, and reused. It is
a new interpreter, because a fork would copy locks that threads of this process hold. It leads a session, so that its
children can be killed with it. It holds one end of a pipe, its lifeline, and this process holds the other: if this
process dies, in any way, the system kills the handler's process."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from subprocess import Popen
from typing import Any

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.messages.message_steps import StepEntry
from pollconsumer.core.retry import STOP_GRACE, HandlerTimeout, NotBegun, ProcessDied, Stopped, Yield
from pollconsumer.runtime.children.protocol import FrameConnection, decode_messages, decode_outcome, encode_refusal
from pollconsumer.runtime.handling import kept_lines, slot_waits
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.handler import Handler, Outcome, signal_name
from pollconsumer.runtime.handling.slot_waits import IN_SLOT, InFlight
from pollconsumer.runtime.system.system_limits import limits, start_refused
from pollconsumer.store.queues.batches import NewBatch

LOOK_EVERY = 0.02
"""Seconds between two checks of whether a process has ended, on systems without pidfds."""
READY_WITHIN = 60.0
"""Seconds within which a new process must have imported the handlers' modules."""
REFUSED_FOR = 5.0
"""Seconds after a failed start in which no other start is tried, unless a process has ended since."""
LONGEST_WAIT = 0.1
"""Seconds between two checks for a stop, and for a process that has ended."""
END_WITHIN = 1.0
"""Seconds within which an idle process must exit by itself when the launch ends."""


class ChildProcess:
    """A process that leads a session, so that a signal reaches its children, too. ``exit_handle``: a descriptor that
    becomes readable when the process ends; None if the system has none. The process is reaped last of all: until then
    its pid is not reused."""

    def __init__(self, argv: Sequence[str], passed: Collection[int], **how: Any) -> None:
        """``passed``: descriptors that the process inherits. ``how``: arguments of `Popen`, whose errors are raised."""
        self._popen = Popen(argv, pass_fds=passed, start_new_session=True, **how)
        self.pid = self._popen.pid
        self.exit_handle: int | None = None
        with suppress(AttributeError, OSError):
            self.exit_handle = os.pidfd_open(self.pid)
        self._ended = False
        self._code: int | None = None

    def has_ended(self) -> bool:
        handle = self.exit_handle  # another thread may reap the process in between
        if not self._ended and handle is not None:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            self._ended = bool(poll.poll(0))
        elif not self._ended:
            self._look()
        return self._ended

    def await_end(self, until: float) -> None:
        """Wait until the process has ended, at most until the instant ``until`` of the monotonic clock."""
        while not self.has_ended() and time.monotonic() < until:
            time.sleep(0.005)

    def signal(self, number: signal.Signals) -> None:
        """Send the signal ``number`` to the process and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def reap(self) -> int | None:
        """The exit code, negative for a signal. None if it has not ended, or other code has waited for it."""
        if self.exit_handle is not None:
            self._look()
            self._ended = True
            os.close(self.exit_handle)
            self.exit_handle = None
        # Popen assumes exit code 0 for a process that another waiter has reaped.
        self._popen.returncode = -1 if self._code is None else self._code
        return self._code

    def _look(self) -> None:
        """Reap the process if it has ended, and record its exit code."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            self._ended = True
        else:
            if pid:
                self._ended, self._code = True, os.waitstatus_to_exitcode(status)


class Processes:
    """The handler processes of a launch. ``program``: the Python file that they run. ``introduction``: the first frame
    for each, which may contain secrets, so it is not on the command line. ``check_lease`` waits until the
    lease can be trusted, and raises if it is lost."""

    def __init__(self, program: Path, introduction: dict[str, Any], check_lease: Callable[[], bool]) -> None:
        self._program, self._introduction, self._directory = program, introduction, os.getcwd()  # noqa: PTH109  as text
        self._check_lease = check_lease
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        self._refused: tuple[float, str] = (0.0, "")
        """The instant until which no process is started, on the monotonic clock, and the error of the last start."""
        self._idle: list[_HandlerProcess] = []
        self._all: set[_HandlerProcess] = set()
        self._closed = False
        os.register_at_fork(after_in_child=self._close_in_fork)

    def around(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """``handlers``, with the isolated ones replaced by handlers that run in these processes."""
        return {
            name: handler.wrapped(self._isolated) if handler.isolated else handler for name, handler in handlers.items()
        }

    def close(self) -> None:
        """End all processes. An idle one has `END_WITHIN` to exit by itself; a busy one is killed."""
        with self._lock:
            self._closed = True
            idle, every = self._idle, self._all
            self._idle, self._all = [], set()
        until = time.monotonic() + END_WITHIN
        for process in idle:
            process.hang_up()
        for process in idle:
            process.await_end(until)
        for process in every:
            process.kill()

    def _close_in_fork(self) -> None:
        """Called in a process that a handler forks: close its lifelines, which would stay open when the launch dies."""
        for process in self._all:
            with suppress(OSError):
                process.close_descriptors()

    def _isolated(self, handler: Handler) -> Handler:
        def run(payload: dict[str, Any], context: LaunchContext | None) -> Any:
            assert context is not None
            process, outcome = self._take(context), None
            while outcome is None:
                try:
                    self._check_lease()  # starting a process may take long, and the launch may be suspended
                except PollConsumerError:
                    self._return(process)
                    raise Yield from None  # it has not begun; the launch, too, notices the lost lease
                try:
                    outcome = process.handle(handler, payload, context)
                except BaseException as error:
                    self._end(process)
                    if not isinstance(error, ProcessDied) or process.began:
                        raise
                    if not process.used:
                        raise NotBegun(f"its process ended: {error}") from None
                    process = self._take(context)  # it died with no message in flight: the message is not to blame
            self._return(process)
            if outcome.error is not None:
                raise outcome.error
            return outcome.result

        # The context knows whether the message was asked to stop.
        return handler._replace(run=run, asynchronous=False, takes_context=True)

    def _take(self, context: LaunchContext) -> _HandlerProcess:
        """An idle process, else a new one. If none can be started, wait for one that becomes idle.

        Raises NotBegun if there is no other process, or if none becomes idle within `READY_WITHIN`."""
        context.limit(READY_WITHIN)
        while True:
            with self._lock:
                process = self._idle.pop() if self._idle else None
            if process is None:
                try:
                    return self._started(context)
                except NotBegun:
                    with self._lock:
                        if not self._all or context.cancelled:
                            raise
                        self._freed.wait(LONGEST_WAIT)
            elif process.is_alive():
                return process
            else:
                self._end(process)

    def _started(self, context: LaunchContext) -> _HandlerProcess:
        """A new process that has imported the handlers' modules. NotBegun if none can be started."""
        until, why = self._refused
        if time.monotonic() < until:
            raise NotBegun(why)
        process = None
        try:
            process = _HandlerProcess(self._program, self._directory)
            with self._lock:
                self._all.add(process)
                closed = self._closed
            if closed:
                raise ProcessDied("the launch is over")
            process.introduce(self._introduction, context.time_left())
        except BaseException as error:
            if process is not None:
                self._end(process)
            if not isinstance(error, ProcessDied | OSError | MemoryError | subprocess.SubprocessError):
                raise
            why = start_refused(error)
            if isinstance(error, ProcessDied):
                why = f"its process could not start: {why}{'' if 'ulimit' in why else f'; {limits()}'}"
            self._refused = time.monotonic() + REFUSED_FOR, why
            raise NotBegun(why) from None
        return process

    def _return(self, process: _HandlerProcess) -> None:
        with self._lock:
            self._idle.append(process)
            self._freed.notify()

    def _end(self, process: _HandlerProcess) -> None:
        process.kill()
        with self._lock:
            self._all.discard(process)
            self._refused = 0.0, ""
            self._freed.notify_all()


class _HandlerProcess(ChildProcess):
    def __init__(self, program: Path, directory: str) -> None:
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self.began = self.used = False
        """``began``: whether the process has begun the last message. ``used``: whether it has handled any message."""
        self._killing, self._killed = threading.Lock(), False
        try:
            numbers = (theirs.fileno(), lifeline)
            # -P: sys.path is sent in the introduction.
            argv = [sys.executable, "-P", os.fspath(program), *map(str, numbers)]
            super().__init__(argv, numbers, stdin=subprocess.DEVNULL, cwd=directory)
        except BaseException:
            ours.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        self._connection = FrameConnection(ours)

    def introduce(self, introduction: dict[str, Any], within: float) -> None:
        """Send ``introduction``. ProcessDied unless the process is ready ``within`` so many seconds."""
        until = time.monotonic() + within
        with suppress(TimeoutError):
            self._send(introduction, until)
            while (left := until - time.monotonic()) > 0:
                answer = self._receive(left)
                if answer is not None:
                    if "unready" in answer:
                        raise ProcessDied(answer["unready"])
                    return
        raise ProcessDied(f"not ready after {within:.3g}s")

    def handle(self, handler: Handler, payload: dict[str, Any], context: LaunchContext) -> Outcome:
        """Let the process handle a message. Returns the outcome. After HandlerTimeout, Stopped or ProcessDied the
        process must not be used again."""
        message = IN_SLOT.get()
        assert message is not None
        until = None if handler.timeout is None else time.monotonic() + handler.timeout
        context.limit(inf if handler.timeout is None else handler.timeout)  # the start of the process does not count
        attempt = {
            "handler": handler.name,
            "payload": payload,
            "timeout": handler.timeout,
            "message": (message.name, message.handler, message.attempt),
            "delivery": context.delivery,
            "deadline": context.deadline,
        }
        self.began = False
        try:
            self._send({"attempt": attempt}, until)
            ended = self._await_outcome(message, context, until)
        except TimeoutError:
            assert handler.timeout is not None
            raise HandlerTimeout(handler.timeout) from None
        finally:
            if (waits := slot_waits.of_process) is not None:
                waits.forget(message)
        self.used = True
        return decode_outcome(ended)

    def _await_outcome(self, message: InFlight, context: LaunchContext, until: float | None) -> dict[str, Any]:
        """Answer the handler's requests until it has ended. Returns the last frame. Raises TimeoutError, or Stopped."""
        end, stop_at, stop_sent = inf if until is None else until, inf, False
        while (now := time.monotonic()) < end:
            frame = self._receive(min(LONGEST_WAIT, end - now))
            if context.stop_asked:
                stop_at = min(stop_at, time.monotonic() + STOP_GRACE)
            if frame is not None:
                if "enqueued" in frame:
                    answer_to(frame["last"], message, context)
                    context.unasked = frame["unasked"]
                    opened = [NewBatch(**each) for each in frame["opened"]]
                    context.left(decode_messages(frame["enqueued"]), opened, frame["added"])
                    return frame
                self.began = self.began or "began" in frame
                if (answer := answer_to(frame, message, context)) is not None:
                    self._send(answer, until)
            if time.monotonic() >= stop_at:
                raise Stopped
            if context.cancelled and not stop_sent:
                self._send({"cancelled": True}, until)
                stop_sent = True
        raise TimeoutError

    def is_alive(self) -> bool:
        """Whether the process is alive and idle."""
        try:
            return self._connection.receive(0) is None and not self.has_ended()
        except OSError:
            return False

    def hang_up(self) -> None:
        self._connection.close()

    def kill(self) -> None:
        """Kill the process and its children."""
        with self._killing:
            if self._killed:
                return
            self._killed = True
            self.signal(signal.SIGKILL)
            self.await_end(time.monotonic() + END_WITHIN)  # it may hang in the kernel
            self.reap()
            self.close_descriptors()

    def close_descriptors(self) -> None:
        self._connection.close()
        os.close(self._lifeline)

    def _send(self, frame: dict[str, Any], until: float | None) -> None:
        try:
            self._connection.send(frame, until)
        except TimeoutError:
            raise
        except OSError:
            raise self._death() from None

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        try:
            frame = self._connection.receive(seconds)
            if frame is None and self.has_ended():
                frame = self._connection.receive(0)  # sent before it died
                if frame is None:
                    raise self._death()
        except OSError:
            raise self._death() from None
        return frame

    def _death(self) -> ProcessDied:
        self.await_end(time.monotonic() + END_WITHIN)  # the connection closes a moment earlier
        lived = not self.has_ended()
        self.kill()
        code = self._code
        if lived:
            return ProcessDied("it closed its connection")
        if code is not None and code < 0:
            return ProcessDied(f"signal {signal_name(-code).removeprefix('signal ')}")
        return ProcessDied(f"exit code {code}")


def answer_to(frame: dict[str, Any], message: InFlight, context: LaunchContext) -> dict[str, Any] | None:
    """Do what ``message``'s handler asks for in ``frame``. Returns the answer; None if its process waits for none."""
    if "checkpoint" in frame:
        return _answered(context.checkpoint, frame["checkpoint"])
    if "step" in frame:
        entry = StepEntry(*frame["step"])._replace(called=decode_messages(frame["called"]))
        return _answered(context.record, entry)
    if "waits" in frame:
        # The handler begins or ends a wait, asks whether it is stuck, or ends it for that: it counts as a wait in the
        # launch.
        (what, *awaited), waits, stuck = frame["waits"], slot_waits.of_process, False
        if waits is not None and what == "begin":
            waits.begin()
        elif waits is not None and what == "end":
            waits.end(message)
        elif waits is not None:
            stuck = (waits.give_up if what == "give_up" else waits.may_be_stuck)(message, *awaited)
        return {"stuck": stuck}
    if "batch" in frame:
        return _answered(context.ask_batch, *frame["batch"])
    if "log" in frame and (lines := kept_lines.of_process) is not None:
        lines.replace(message, frame["log"])
    if "progress" in frame:
        context.progress(*frame["progress"])
    return None


def _answered(ask: Callable[..., Any], *question: Any) -> dict[str, Any]:
    """The frame that answers a request: what ``ask`` returned for ``question``, or the error that it raised."""
    try:
        return {"answer": ask(*question)}
    except PollConsumerError as error:
        return {"refused": encode_refusal(error)}
