"""A consumer in virtual time: a clock that only handlers and waits move, and a store that keeps to it.

Instants are whole multiples of 2**-10 s, so that sums of them are exact and two ways of adding them up compare equal.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pollconsumer.core.choices import Loop
from pollconsumer.core.durations import Durations, Histogram, MarginRule
from pollconsumer.core.window import StopReason, Window
from pollconsumer.runtime.consumer import Consumer
from pollconsumer.runtime.handling.executors import Attempt, Executor, Handled
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.launch.board import LaunchProgress
from pollconsumer.runtime.launch.launch import LaunchPlan
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.runtime.session import attempts, pace
from pollconsumer.runtime.session.pace import ConsumerOptions
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Claim, Reservation
from pollconsumer.store.records.steps import Promoted, QueueStep, Stepped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pollconsumer.core.events import Event
    from pollconsumer.runtime.handling.executors import Executor
    from pollconsumer.runtime.launch.launch import Launch
    from pollconsumer.store.records.steps import Reports

TICK = 2.0**-10


@contextmanager
def whole_ticks() -> Iterator[None]:
    """Slices of a wait, and the horizon of a page, in whole ticks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "LONGEST_WAIT", 0.75)
        for module in (attempts, pace):
            patch.setattr(module, "HORIZON", 10 * TICK)
        yield


QUEUE = "mail"
HANDLER = "handler"


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class Arrival:
    """A message that is ready ``at`` an instant, and takes its handler ``duration`` seconds if it is none of those that
    are set aside: malformed, or for a handler that is not known here."""

    at: float
    duration: float
    outcome: str = "completed"
    """Or retry, dead, park."""


@dataclass
class Arrivals:
    """What becomes ready when; each message is handed out once, in order."""

    script: Sequence[Arrival]
    handed: int = 0

    def ready(self, now: float) -> bool:
        return self.handed < len(self.script) and self.script[self.handed].at <= now

    def take(self, now: float, most: int) -> list[int]:
        taken: list[int] = []
        while len(taken) < most and self.ready(now):
            taken.append(self.handed)
            self.handed += 1
        return taken

    def next_at(self) -> float | None:
        return self.script[self.handed].at if self.handed < len(self.script) else None


def row(attempts: int) -> bytes:
    return bytes(4) + attempts.to_bytes(2, "big") + bytes(56) + HANDLER.encode()


@dataclass
class VirtualStore:
    """Hands out arrivals. ``waking``: whether a wait ends with an arrival, or passes in full and brings nothing."""

    clock: Clock
    arrivals: Arrivals
    waking: bool
    before_wait: Callable[[float], None]
    reserved: set[int] = field(default_factory=set)
    settled: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Message → what became of it, and its attempts from then on."""
    head: list[int] = field(default_factory=list)
    """What was released, as it stands at the head of the queue."""
    keys = Keys("virtual")
    wire = SimpleNamespace(command=lambda *_: [])
    """Its outboxes are empty."""

    def step(
        self,
        _claim: Claim,
        queue_steps: Sequence[QueueStep],
        *,
        lasts_ms: int,
        now: Callable[[], float],
        wait: float = 0.0,
        promoting: Sequence[str] = (),
        reports: Reports | None = None,
        keep: Callable[[str], Iterable[bytes]] = lambda _: (),
    ) -> Stepped:
        del lasts_ms, keep
        assert reports is None
        stepped = Stepped()
        stepped.promoted = [Promoted(0, inf, recurring=False, to_repair=False) for _ in promoting]
        for queue_step in queue_steps:
            for _, new_row, ids, _ in queue_step.groups:
                for name in ids:
                    self._settle(name, "completed", new_row)
            for settlement in queue_step.settlements:
                self._settle(settlement.id, settlement.kind, settlement.new_row)
        if wait:
            self.before_wait(wait)
            if not self.wait(wait):
                return stepped
        taken = [n for queue_step in queue_steps for n in self.arrivals.take(self.clock.now, queue_step.wanted)]
        self.reserved.update(taken)
        stepped.reserved = [self._reservation(n, now()) for n in taken]
        return stepped

    def _reservation(self, n: int, now: float) -> Reservation:
        outcome = self.arrivals.script[n].outcome
        handler = "unknown" if outcome == "park" else HANDLER
        payload = "{bad" if outcome == "dead" else f'{{"n":{n}}}'
        record = b"A" + bytes(10) + f"{handler}\n{payload}".encode()
        return Reservation.alone(QUEUE, b"%d" % n, row(1), record, int(now * 1000), now)

    def wait(self, seconds: float, until: float = inf) -> bool:
        """Pass so many seconds, fewer if an arrival wakes, or ``until`` comes. Whether an arrival did."""
        end = min(self.clock.now + seconds, until)
        next_at = self.arrivals.next_at()
        woken = self.waking and next_at is not None and next_at <= end
        self.clock.now = max(self.clock.now, next_at) if woken and next_at is not None else end
        return woken

    def _settle(self, name: bytes, kind: str, new_row: bytes) -> None:
        n = int(name)
        assert n not in self.settled, "settled twice"
        assert n in self.reserved
        self.settled[n] = (kind, rows.attempts(new_row))
        if kind == "release":
            self.head.insert(0, n)

    @property
    def maintenance(self) -> VirtualStore:
        return self

    def trim(self, *_: Any) -> int:
        return 0

    def recover(self, *_: Any, **__: Any) -> int:
        return 0

    offer_places = trim


class VirtualSlots:
    """Several handlers at a time: each ends when the clock has come to its end."""

    def __init__(self, slots: int, clock: Clock, duration: Callable[[dict[str, Any]], float]) -> None:
        self.slots, self._clock, self._duration = slots, clock, duration
        self._running: list[tuple[float, int, Handled]] = []
        self._finished: list[Handled] = []
        self._count = 0

    @property
    def busy(self) -> int:
        return len(self._running)

    def start(self, attempt: Attempt) -> None:
        assert self.busy < self.slots
        started = self._clock.now
        outcome = attempt.handle()
        handled = Handled(attempt, started, started + self._duration(attempt.payload), outcome)
        self._count += 1
        heapq.heappush(self._running, (handled.ended, self._count, handled))

    def finished(self) -> list[Handled]:
        while self._running and self._running[0][0] <= self._clock.now:
            self._end_next()
        finished, self._finished = self._finished, []
        return finished

    def lock(self) -> Lock:
        return Lock()

    def next_end(self) -> float:
        return self._running[0][0] if self._running else inf

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        del descriptor
        until = self._clock.now + seconds
        if self.next_end() > until:
            self._clock.now = until
            return
        self._clock.now = max(self._clock.now, self.next_end())
        self._end_next()

    def close(self) -> None:
        """There is nothing to close."""

    def _end_next(self) -> None:
        self._finished.append(heapq.heappop(self._running)[2])


@dataclass
class VirtualWake:
    store: VirtualStore
    slots: VirtualSlots | None
    pending: bool = False

    def wait(self, seconds: float, executor: Executor | None = None) -> bool:
        del executor
        self.store.before_wait(seconds)
        self.pending = True
        woken = self.store.wait(seconds, self.slots.next_end() if self.slots else inf)
        self.pending = not woken
        return woken

    def close(self) -> None:
        self.pending = False


@dataclass(frozen=True)
class Settings:
    stop_before: float
    idle_time: float
    estimated_duration: float
    tolerance_factor: float
    min_margin: float = 0.0
    slots: int = 1
    learned: tuple[float, int] | None = None
    waking: bool = False
    max_messages: int | None = None
    until_empty: bool = False
    taken_in_at: float | None = None
    overrun_target: float = 1.0
    loop: Loop = Loop.WOKEN


class TakenIn(threading.Event):
    """Set from an instant on."""

    def __init__(self, clock: Clock, at: float) -> None:
        super().__init__()
        self._clock, self._at = clock, at

    def is_set(self) -> bool:
        return self._clock.now >= self._at


def histogram(duration: float, count: int) -> Histogram:
    """So many of one duration."""
    durations = Histogram()
    for _ in range(count):
        durations.add(duration)
    return durations


class VirtualLaunch:
    """A consumer in virtual time, all of whose decisions are written down."""

    def __init__(self, settings: Settings, script: Sequence[Arrival], start: float = 0.0) -> None:
        self.settings, self.script = settings, script
        self.id, self.min_margin, self.waited = "launch", settings.min_margin, False
        self.clock, self.window, self.plan = Clock(start), Window(start, settings.stop_before), LaunchPlan(60.0, 10.0)
        self.progress = LaunchProgress()
        self.end = LaunchEnd(self.progress.flight, settings.stop_before, self.plan.grace, self.plan.handler_limit)
        self.claim = Claim("consumer:mail:0", "1", "consumer:mail")
        self.decisions: list[tuple[str | int | float, ...]] = []
        self.started: list[tuple[int, float, float]] = []
        """Messages started, when, and the margin at that moment."""
        self.waits: list[tuple[float, float]] = []
        """From when, and until when at the latest."""
        self.events: list[Event] = []
        self.leases = SimpleNamespace(live_fences=list, count=lambda *_: None)
        self.store = VirtualStore(self.clock, Arrivals(script), settings.waking, self._before_wait)
        self.slots = VirtualSlots(settings.slots, self.clock, lambda payload: script[payload["n"]].duration)
        inline = settings.slots == 1
        handler = Handler(HANDLER, lambda payload, _: self._handle(**payload))
        learned = {} if settings.learned is None else {HANDLER: histogram(*settings.learned)}
        launch = self

        class Written(Consumer):
            def idle(self) -> None:
                launch.decisions.append(("idle", launch.clock.now))
                super().idle()

        self.consumer = Written(
            ConsumerOptions(
                queues=(QUEUE,),
                idle_time=settings.idle_time,
                margin=MarginRule(
                    settings.estimated_duration,
                    settings.tolerance_factor,
                    settings.min_margin,
                    settings.overrun_target,
                    settings.loop,
                ),
                max_messages=settings.max_messages,
                until_empty=settings.until_empty,
                taken_in=None if settings.taken_in_at is None else TakenIn(self.clock, settings.taken_in_at),
            ),
            cast("Launch", self),
            {HANDLER: handler},
            Executor(self.clock) if inline else cast("Any", self.slots),
            Durations(learned, self.window.length, settings.loop),
            cast("Any", VirtualWake(self.store, None if inline else self.slots)),
            set(),
        )

    def chance(self) -> float:
        return 0.0

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def interrupted(self) -> bool:
        return False

    def lease_is_trusted(self) -> bool:
        return True

    def check_lease(self) -> bool:
        """It is there for as long as the launch is."""
        return False

    def handle_until_stopped(self) -> StopReason:
        reason = self.consumer.handle_until_stopped()
        self.decisions.append(("stop", self.clock.now, reason))
        return reason

    def _handle(self, n: int) -> None:
        self.decisions.append(("handle", n, self.clock.now))
        self.started.append((n, self.clock.now, self.consumer.margin()))
        if self.settings.slots == 1:
            self.clock.advance(self.script[n].duration)
        if self.script[n].outcome == "retry":
            raise ValueError("no")

    def _before_wait(self, seconds: float) -> None:
        self.waits.append((self.clock.now, self.clock.now + seconds))
        in_flight = {n for n, at, _ in self.started if at + self.script[n].duration > self.clock.now}
        unsettled = self.store.reserved - self.store.settled.keys()
        assert unsettled <= in_flight, "an outcome waits with the consumer"
