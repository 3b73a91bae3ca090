"""A process of isolated handlers: imports the launch's modules, then handles messages."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.messages.message_steps import Progress, StepEntry
from pollconsumer.core.users_code import OURS, whose
from pollconsumer.interface.assembly.handlers import load_handlers
from pollconsumer.interface.assembly.log_outputs import direct_log
from pollconsumer.interface.logs import logs
from pollconsumer.interface.logs.logs import LaunchStreaks, identify, log
from pollconsumer.interface.settings.model import settings_of
from pollconsumer.runtime.children.protocol import FrameConnection, decode_refusal, encode_messages, encode_outcome
from pollconsumer.runtime.handling import kept_lines, slot_waits
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery, Situation
from pollconsumer.runtime.handling.handler import Handler, hooks_before_enqueue
from pollconsumer.runtime.handling.kept_lines import ROOT
from pollconsumer.runtime.handling.slot_waits import IN_SLOT, ServedQueues, SlotWaits
from pollconsumer.runtime.new_messages import Defaults
from pollconsumer.runtime.system import standard_error
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.runtime.system.signals import SIGNALS, end_stray, flush_streams, handle_signals_plainly_in_forks
from pollconsumer.runtime.system.standard_error import outlast_readers
from pollconsumer.runtime.system.system_limits import start_refused

REPORT_EVERY = 0.2
"""Least seconds between two reports to the launch, since a handler may report in each turn of a loop."""


def serve(launch: socket.socket, introduction: dict[str, Any]) -> None:
    """Handle messages for the launch until the launch closes the connection."""
    handle_signals_plainly_in_forks(SIGNALS)
    connection = FrameConnection(launch)
    standard_error.remember()
    lost_output = outlast_readers()
    whose.set(OURS)
    logs.configure(introduction["verbosity"], quiet=introduction["quiet"])
    config = introduction["config"]
    directory = Path(introduction["directory"])
    settings = settings_of(introduction["settings"], directory, Path(config) if config else None, lenient=True)
    direct_log(settings)
    logs.keep_lines(settings.logs.keep)
    identify(*introduction["identity"])
    if (damping := introduction["streaks"]) is not None:
        log.streaks = LaunchStreaks(damping["name"], settings.state_files(), launch=damping["launch"])
    try:
        handlers = load_handlers(settings)
        server = _ChildServer(connection, handlers, introduction["defaults"], introduction["identity"][0])
    except (PollConsumerError, MemoryError, RuntimeError, OSError) as error:
        connection.send({"unready": start_refused(error)})
        return
    connection.send({"ready": True})
    server.serve()
    logs.warn_of_lost_output(lost_output())


class Handed(NamedTuple):
    """A message in flight, as the launch identifies it: by id (``name``), by handler, by the number of its attempt."""

    name: str
    handler: str
    attempt: int


class Reports:
    """Sends a handler's progress and log lines to the launch at intervals, while it holds the lock ``sending``."""

    def __init__(self, connection: FrameConnection, sending: threading.Lock, handed: Handed) -> None:
        self._connection, self._sending, self._lock = connection, sending, threading.Lock()
        self._begun, self._taken = False, threading.Event()
        self._unsent: dict[str, Any] = {}
        self._handed, self._lines, self._pid = handed, kept_lines.of_process, os.getpid()
        if self._lines is not None:
            self._lines.begun = self._begin

    def report(self, _message: object, progress: Progress) -> None:
        with self._lock:
            self._unsent = {"progress": progress[:3]}
        self._begin()

    def take(self) -> dict[str, Any]:
        """The reports that are not sent yet. After this call none is sent."""
        with self._lock:
            self._taken.set()
            last = self._last()
            if self._lines is not None:
                self._lines.tails.clear()
            return last

    def _begin(self) -> None:
        """Start the thread that sends, unless it runs already, or this is a process that the handler has forked."""
        if not self._begun and os.getpid() == self._pid:
            self._begun = True
            with suppress(RuntimeError):  # the system refuses a thread: the last report goes with the outcome
                start_thread("progress", self._send)

    def _last(self) -> dict[str, Any]:
        last, self._unsent = self._unsent, {}
        if self._lines is not None and (text := self._lines.unreported(self._handed)) is not None:
            last["log"] = text
        return last

    def _send(self) -> None:
        with suppress(OSError):  # the launch is gone
            while not self._taken.wait(REPORT_EVERY):
                with self._sending, self._lock:
                    if last := self._last():
                        self._connection.send(last)


class _ReportedWaits(SlotWaits):
    """The waits of this process's handler. They are reported to the launch, which knows those of all its handlers."""

    def __init__(self, launch: str, deadline: float, handed: Handed, ask: Callable[..., bool]) -> None:
        super().__init__(ServedQueues(launch, (), 0, lambda: deadline, True, list))
        self._handed, self._ask_launch = handed, ask

    def begin(self) -> Handed:
        self._ask_launch("begin")
        return self._handed

    def end(self, _: object) -> None:
        self._ask_launch("end")

    def may_be_stuck(self, _: object, queue: str, awaited: str) -> bool:
        return self._ask_launch("may_be_stuck", queue, awaited)

    def give_up(self, _: object, queue: str, awaited: str) -> bool:
        return self._ask_launch("give_up", queue, awaited)


class _ChildServer:
    def __init__(
        self, connection: FrameConnection, handlers: dict[str, Handler], defaults: dict[str, list[Any]], launch: str
    ) -> None:
        self._connection, self._handlers, self._defaults, self._launch = connection, handlers, defaults, launch
        self._attempts: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._replies: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._asking = threading.Lock()
        self._busy = self._cancelled = False
        self._pid = os.getpid()
        start_thread("launch", self._listen)

    def serve(self) -> None:
        while (given := self._attempts.get()) is not None:
            answer = self._handle(given)
            flush_streams()
            self._busy = False
            try:
                self._connection.send(answer)
            except OSError:  # the handler closed the connection, or the launch is gone
                return

    def _listen(self) -> None:
        """Receive from the launch. If the launch is dead, exit; while a handler runs, kill this process's group."""
        try:
            while (frame := self._connection.receive()) is not None:
                if "attempt" in frame:
                    self._busy, self._cancelled = True, False
                    self._connection.send({"began": True})  # from now on the message is charged for a death
                    self._attempts.put(frame["attempt"])
                elif "cancelled" in frame:
                    self._cancelled = True
                else:
                    self._replies.put(frame)
        except OSError:
            if self._busy:
                os.killpg(0, signal.SIGKILL)
        self._attempts.put(None)

    def _handle(self, given: dict[str, Any]) -> dict[str, Any]:
        handed = Handed(*given["message"])
        lines = kept_lines.of_process
        if lines is not None and lines.keeper is not None and lines.keeper not in ROOT.handlers:
            ROOT.addHandler(lines.keeper)
        IN_SLOT.set(handed)
        slot_waits.of_process = _ReportedWaits(
            self._launch, given["deadline"], handed, lambda *what: self._ask({"waits": what})["stuck"]
        )
        handler = self._handlers[given["handler"]]
        if given["timeout"] != handler.timeout:
            handler = handler.with_timeout(given["timeout"])  # the message's own timeout
        reports = Reports(self._connection, self._asking, handed)
        situation = Situation(
            lambda began, limit=inf: min(given["deadline"], began + limit),
            lambda: self._cancelled,
            lambda _, state: self._asked({"checkpoint": json.loads(state)}),
            lambda name: Defaults(*self._defaults.get(name, ())),
            report=reports.report,
            before_enqueue=hooks_before_enqueue(handler),
            record=None if handler.at_most_once else self._record,
            ask_batch=lambda *question: self._asked({"batch": question}),
            codec=handler.codec,
        )
        context = LaunchContext(Delivery(*given["delivery"]), situation)
        # The launch enforces its timeout.
        outcome = handler._replace(timeout=None).handle(given["payload"], context)
        end_stray(self._pid, outcome.error)
        context.end()
        ended = {"enqueued": encode_messages(context.enqueued), "last": reports.take(), "added": context.added}
        ended |= {"opened": [batch._asdict() for batch in context.batches()], "unasked": [*(context.unasked or ())]}
        return encode_outcome(outcome, handler.fatal) | ended

    def _record(self, _message: object, entry: StepEntry) -> None:
        self._asked({"step": entry._replace(called=()), "called": encode_messages(entry.called)})

    def _asked(self, frame: dict[str, Any]) -> Any:
        """The answer of the launch to ``frame``. Raises the exception that the launch sent instead of an answer."""
        reply = self._ask(frame)
        if "refused" in reply:
            raise decode_refusal(reply["refused"])
        return reply["answer"]

    def _ask(self, frame: dict[str, Any]) -> dict[str, Any]:
        with self._asking:
            self._connection.send(frame)
            return self._replies.get()
