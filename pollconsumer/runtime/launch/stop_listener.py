"""Listens for requests to stop what a launch has in hand, and for pauses of its handlers, in its heartbeat, between
renewals.

A blocking read waits for a marker of the launch's fence, on a connection of its own: an idle launch costs the store
one command for each renewal. Its launch is told through shared memory, and woken by a signal, since its only thread
may be the handler's.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from pollconsumer.core.errors import PollConsumerError, shown
from pollconsumer.core.notation.text import printable
from pollconsumer.runtime.launch.shared_memory.launch_progress import LaunchProgress
from pollconsumer.runtime.system.process import is_stopped
from pollconsumer.runtime.system.signals import CALL
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys

FIRST_AFTER = 0.5
"""Seconds of a launch's life before it listens: a shorter launch is not worth a connection."""
BLOCK = 60.0
"""Seconds for which the server blocks: a connection that was lost without a word is replaced after that."""
ANSWER_WITHIN = 0.5
"""Seconds: a server that does not answer must not delay a renewal."""
STUBBORN_AFTER = 15.0
"""Seconds after a request, by which every message that can be stopped has been."""


class StopListener:
    def __init__(
        self, pid: int, progress: LaunchProgress, wire: Wire, keys: Keys, fence: str, queues: Sequence[str],
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._pid, self._progress, self._wire, self._tell = pid, progress, wire, tell
        wire.patience = lambda: Budget(ANSWER_WITHIN)
        self._markers = [f"{keys.queue(queue, 'stop_marker')}:{fence}" for queue in queues]
        self._requests = {queue: keys.queue(queue, "stops") for queue in queues}
        self._pauses = keys.control("paused_handlers")
        self._paused: set[bytes] | None = None
        """Names of the paused handlers, as the launch was told."""
        self._blocked = False
        self._attend_at = time.monotonic() + FIRST_AFTER
        self._asked: dict[tuple[str, bytes], float] = {}
        """When the launch was told of each request, on the monotonic clock; infinity once it was reported that the
        message of the request goes on."""

    def wait(self, wait: Callable[[float, int | None], bool], seconds: float) -> bool:
        """Wait at most ``seconds`` for the launch's end. Returns whether it has ended. ``wait`` does the waiting: it is
        given seconds, and a descriptor that ends its wait once it is readable, and returns the same."""
        if not self._markers:  # of a mover
            return wait(seconds, None)
        self._report()
        until = time.monotonic() + seconds
        while True:
            end = min(until, time.monotonic() + self._wire.look_every if self._blocked else self._attend_at)
            if wait(max(0.0, end - time.monotonic()), self._wire.fileno() if self._blocked else None):
                return True
            now = time.monotonic()
            if now >= until and (self._blocked or now < self._attend_at):
                return False
            with suppress(PollConsumerError, Unanswered):
                self._attend()
                continue
            self._wire.close()
            self._blocked = False
            self._attend_at = time.monotonic() + FIRST_AFTER

    def _attend(self) -> None:
        if self._blocked and self._wire.readable(0.0):
            self._blocked = False
            self._wire.receive([()])
        if not self._blocked:
            self._pass_on()
            self._wire.send([("BLPOP", *self._markers, BLOCK)])
            self._blocked = True

    def _pass_on(self) -> None:
        *answers, pauses = self._wire.once([("HGETALL", key) for key in (*self._requests.values(), self._pauses)])
        if (paused := set(pauses[::2])) != self._paused:
            self._progress.stops.pause(paused)  # GUARD told of pauses
            self._paused = paused
        found = {(queue, each) for queue, answer in zip(self._requests, answers, strict=True) for each in answer[::2]}
        for each in found - self._asked.keys():
            self._progress.stops.ask(each)
            self._asked[each] = time.monotonic()
            with suppress(OSError):
                os.kill(self._pid, CALL)
        for each in self._asked.keys() - found:
            del self._asked[each]

    def _report(self) -> None:
        """Tell, once for each, of messages that go on long after they were to stop."""
        overdue = {each for each, at in self._asked.items() if time.monotonic() - at >= STUBBORN_AFTER}
        for held in self._progress.flight.left_behind() if overdue else []:
            if (held.queue, held.id) in overdue and not held.ended:
                name = f"{shown(held.id.decode('utf-8', 'replace'))} ({held.handler})"
                why = "its code blocks in a thread, or swallows the interruption"
                self._tell(f"warning: not stopped: {printable(name)}, {STUBBORN_AFTER:g}s after it was asked to: {why}")
        for each in overdue:
            self._asked[each] = float("inf")


class Parent:
    """The launch, as its heartbeat watches it while it listens. ``ends`` become readable when the launch dies."""

    def __init__(self, pid: int, ends: list[int], listening: StopListener) -> None:
        self._pid, self._ends, self._listening = pid, ends, listening

    def ends_within(self, seconds: float) -> bool:
        return self._listening.wait(self._ends_by, seconds)

    def _ends_by(self, seconds: float, descriptor: int | None) -> bool:
        watched = self._ends if descriptor is None else [*self._ends, descriptor]
        ready = select.select(watched, [], [], seconds)[0]
        return any(each in self._ends for each in ready) or os.getppid() != self._pid

    def is_suspended(self) -> bool:
        return is_stopped(self._pid)

    def call(self) -> None:
        with suppress(OSError):
            os.kill(self._pid, CALL)

    def kill(self) -> None:
        """End it by a signal at which faulthandler writes its stacks; but not a program by which a handler has replaced
        it (exec)."""
        with suppress(OSError):
            if os.readlink(f"/proc/{self._pid}/exe") == os.readlink("/proc/self/exe"):  # noqa: PTH115  as text
                os.kill(self._pid, signal.SIGABRT)
