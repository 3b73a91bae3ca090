"""Handlers of one to ten windows, mixed with short ones: a story of each case, and what must hold of it."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.choices import HandOff
from pollconsumer.core.events import LaunchBegan, LaunchWaits
from pollconsumer.core.lifecycle import State
from pollconsumer.interface.memory_store import DirectConnection
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.runtime.system.watchdog import EXIT_CODE
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.ledger import launches_of
from tests.faults import store_view
from tests.faults.checker import violations
from tests.faults.recording import digest
from tests.simulation.hosts.process import Process
from tests.simulation.installation import NAMESPACE, QUEUES, RULES, SCRIPTS, Installation, Opener
from tests.simulation.platforms import PLATFORMS
from tests.simulation.recorder import Recorder
from tests.simulation.standing import holders, standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pollconsumer.core.events import Event
    from pollconsumer.core.window import StopReason
    from pollconsumer.runtime.handling.context import Context
    from pollconsumer.runtime.handling.handler import Handler
    from pollconsumer.runtime.launch.launch import Launch
    from pollconsumer.store.records.reservations import Reservation

WINDOW, GRACE = RULES.timeout, RULES.grace
MINUTE = 60.0
WINDOWS = (1.0, 2.0, 3.0, 5.0, 10.0)
A_LITTLE_MORE = 1.05
"""How long the long handlers take, in windows and a part of one; longer than a window, which the baton doubles."""
LIMIT = 11 * WINDOW
"""The timeout of the long handlers that declare one."""
LONG = ("long", "long_isolated", "long_without_timeout")
MOST_WITHOUT_TIMEOUT = 5.0
"""Windows for which a handler without a timeout goes on: no longer than the default limit."""
MINUTES, LONG_MESSAGES, SHORT_EVERY, SHORT = 5, 3, 4.0, 0.2
"""Minutes in which messages are sent; of short ones one each so many seconds, which takes so many."""
LOOKS_EVERY = 300.0
"""Seconds between two looks at all that is stored."""
LASTS_AT_MOST = 100 * MINUTE
LEAVES_WITHIN = 2.0
"""Seconds from the end of a launch's work to the end of its process, at most."""
BETWEEN = {"debian-cron": 10.0, "systemd": 10.0, "flock": 75.0}
"""Seconds, at most, for which a message waits that could begin: the margin, the start of the next launch, the grace;
where a tick is dropped, the time until the next one."""
HEARD_WITHIN = 1.0
"""Seconds from a successor's call to when the holder hears it, at most."""
JUST_AFTER = 0.005
"""Seconds after the end of a handler in which its outcome is settled."""
FAST, SLOW = "run", "slow"
"""The lines of the crontab, which name their launches."""


class Case(NamedTuple):
    """``apart``: the long messages have a queue and a line of the crontab of their own. ``kills``: at a random instant
    of each long handling's first attempt something is killed."""

    handoff: HandOff
    slots: int = 1
    instances: int = 1
    apart: bool = False
    kills: bool = False
    platform: str = "debian-cron"


class Tenure(NamedTuple):
    """When a launch was there, in true seconds: it waits, holds its lease, ends its work. ``began`` is None if it never
    held it."""

    process: Process
    waits: float | None = None
    began: float | None = None
    stop_before: float = 0.0
    released: float | None = None

    def span(self) -> tuple[float, float]:
        since = self.waits if self.waits is not None else self.began
        assert since is not None
        until = self.process.world.now if self.process.alive else self.process.ended
        return since, until if self.released is None else min(self.released, until)


class Sent(NamedTuple):
    at: float
    name: str
    handler: str
    queue: str
    seconds: float


class LongWork(Installation):
    def __init__(self, seed: int, case: Case) -> None:
        rules = RULES._replace(handoff=case.handoff, slots=case.slots)
        super().__init__(seed, PLATFORMS[case.platform], rules)
        self.case, self.instances = case, case.instances
        self.window = WINDOW * (2 if case.handoff.on_call else 1)
        self.history.one_at_a_time = case.slots == case.instances == 1 and not case.apart
        self.history.settled_within = int((LIMIT + GRACE) * 1000)
        self.tenures: dict[Process, Tenure] = {}
        self.killed: dict[Process, float] = {}
        """Processes that were killed, or whose heartbeat was, and when."""
        self.found: list[str] = []
        self.sent = sorted(self._drawn())
        self.wire = Wire(
            "memory:", lambda: Budget(60.0), connect=lambda: DirectConnection(self.server.store.execute),
            scripts=SCRIPTS,
        )  # fmt: skip
        self._chance = self.world.stream("kills")
        self._called_in: list[Process] = []
        """The launch of each execution."""

    def _drawn(self) -> Iterator[Sent]:
        chance = self.world.stream("messages")
        for number in range(int(MINUTES * MINUTE / SHORT_EVERY)):
            queue = QUEUES[0] if self.case.apart else chance.choice(QUEUES)
            yield Sent(number * SHORT_EVERY, f"short-{number}", "plain", queue, chance.uniform(0.0, 2 * SHORT))
        for number in range(LONG_MESSAGES):
            handler, windows = chance.choice(LONG), chance.choice(WINDOWS) + chance.random()
            if handler == "long_without_timeout":
                windows = min(windows, MOST_WITHOUT_TIMEOUT)
            queue = QUEUES[1] if self.case.apart else chance.choice(QUEUES)
            seconds = max(windows * WINDOW, self.window * A_LITTLE_MORE)
            at = chance.uniform(0.0, MINUTES * MINUTE)
            if number == 0:  # its launch is called for, or ends, when it has hardly begun
                at = chance.randint(1, MINUTES) * MINUTE + chance.uniform(-GRACE, GRACE / 2)
            yield Sent(at, f"long-{number}", handler, queue, seconds)

    # The installation

    def launch(self, role: str, machine: Any = None) -> Process:
        machine = machine or self.world.stream(f"machine of {len(self.processes)}").choice(self.machines)
        process = Process(machine, f"{role} {len(self.processes) + 1}", self._consume)
        self.processes.append(process)
        self.tenures[process] = Tenure(process)
        return process

    def served_by(self, process: Process) -> tuple[str, ...]:
        return (QUEUES[line_of(process) == SLOW],) if self.case.apart else QUEUES

    def told(self, process: Process, event: Event) -> None:
        tenure = self.tenures[process]
        if isinstance(event, LaunchWaits):
            self.tenures[process] = tenure._replace(waits=self.world.now)
        elif isinstance(event, LaunchBegan):
            self.tenures[process] = tenure._replace(began=self.world.now)

    def work(self, launch: Launch, process: Process) -> StopReason:
        left = launch.window.stop_before - process.monotonic()
        self.tenures[process] = self.tenures[process]._replace(stop_before=self.world.now + left)
        try:
            return super().work(launch, process)
        finally:
            self.tenures[process] = self.tenures[process]._replace(released=self.world.now)

    def handlers(self, process: Process) -> dict[str, Handler]:
        handlers = super().handlers(process)
        plain, isolated = handlers["plain"], handlers["isolated"]
        return handlers | {
            "long": plain._replace(name="long", timeout=LIMIT),
            "long_isolated": isolated._replace(name="long_isolated", timeout=LIMIT),
            "long_without_timeout": plain._replace(name="long_without_timeout"),
        }

    def _execute(
        self,
        process: Process,
        call: Context | Reservation,
        payload: dict[str, Any],
        act: Callable[[], dict[str, Any]],
        state: int = 0,
    ) -> Any:
        self._called_in.append(process)
        if self.case.kills and call.handler in LONG and call.attempt == 1:
            self._plan_a_kill(process, payload["seconds"])
        return super()._execute(process, call, payload, act, state)

    def _plan_a_kill(self, process: Process, seconds: float) -> None:
        """In a phase of the handling that has begun: within the window, beyond it, or when it is settled."""
        now, closes = self.world.now, self.tenures[process].stop_before
        ends = now + seconds
        phases = [(now, min(closes, ends)), (min(closes, ends), ends), (ends, ends + JUST_AFTER)]
        victim = self._chance.choice([self._kill, self._kill_heartbeat, self._kill_both, self._kill_successor])
        self.world.at(self._chance.uniform(*self._chance.choice(phases)), partial(victim, process))

    def _kill(self, process: Process) -> None:
        self._struck(process, "killed")
        process.end()

    def _kill_heartbeat(self, process: Process) -> None:
        self._struck(process, "loses its heartbeat")
        if process.heartbeat is not None:
            process.heartbeat.stop()

    def _kill_both(self, process: Process) -> None:
        self._kill_heartbeat(process)
        process.end()

    def _kill_successor(self, process: Process) -> None:
        waiting = [
            each.process
            for each in self.tenures.values()
            if each.waits is not None and each.began is None and each.process.alive
        ]
        self._kill(waiting[0] if waiting else process)

    def _struck(self, process: Process, how: str) -> None:
        if process.alive:
            self.killed.setdefault(process, self.world.now)
            self.world.tell(f"{process.name} {how}")
            self.history.faults.append(f"{process.name} {how}")
            self.world.after(0.0, self._look)

    def _produce(self, process: Process) -> int:
        wire = Opener(self.server, process).wire()
        store, recorder = RedisStore(wire, NAMESPACE, clocks=process), Recorder(self, "producer", wire)
        for at, name, handler, queue, seconds in self.sent:
            process.sleep(max(0.0, at - self.world.now))
            payload = {"seconds": seconds, "fails": 0}
            message = new_message(handler, payload, id=name, queue=queue)

            def call(message: Any = message) -> None:
                store.enqueue([message])

            recorder.record("enqueue", queue, name, call, {"handler": handler, "digest": digest(payload)})
        return 0

    def _look(self) -> None:
        self.found += [f"standing: {line}, at {self.world.now:.3f} s" for line in standing(self, self.wire)]

    def _is_done(self) -> bool:
        handled = {each.id for each in self.history.executions if each.outcome == "ok"}
        if self._producer.alive or len(handled) < len(self.sent):
            return False
        stored = store_view.stored(self.wire, NAMESPACE)
        return len(stored) == len(self.sent) and all(State(each.state).has_ended for each in stored)

    def tell(self) -> list[str]:
        """Until all messages have ended, and no launch is there. Returns what the invariants have against it."""
        lines = [FAST, SLOW] if self.case.apart else [FAST]
        launching = [self.launch_until(LASTS_AT_MOST, line) for line in lines for _ in range(self.case.instances)]
        self._producer = Process(self.machines[0], "producer", self._produce)
        while not self._is_done():
            if self.world.now >= LASTS_AT_MOST:
                self.found.append(f"liveness: work is left after {self.world.now / MINUTE:.0f} minutes")
                break
            self.world.run_for(1.0)
            self.found += [f"{line}, at {self.world.now:.1f} s" for line in holders(self)]
            if self.world.now % LOOKS_EVERY < 1.0:
                self._look()
        for each in launching:
            each.stop()
        self.world.run_for(2 * WINDOW + GRACE + LEAVES_WITHIN)
        return [*self.found, *self.judged()]

    # What must hold

    def judged(self) -> Iterator[str]:
        history = self.history
        history.stored = store_view.stored(self.wire, NAMESPACE)
        history.queues, history.leases = (
            store_view.queues(self.wire, NAMESPACE),
            store_view.leases(self.wire, NAMESPACE),
        )
        history.commands = self.ran()
        yield from violations(history)
        yield from self.nothing_is_ended_within_its_limit()
        yield from self.who_cannot_get_the_lease_ends_within_its_window()
        yield from self.messages_begin_beyond_the_window_beside_long_ones_alone()
        yield from self.another_line_does_not_wait()
        yield from self.in_each_minute_a_launch_is_there()
        if not self.killed:
            yield from self.free_slots_take_what_waits()
            yield from self.the_ledger_counts_who_left()

    def nothing_is_ended_within_its_limit(self) -> Iterator[str]:
        for each in self.processes:
            if each.alive or each.code == EXIT_CODE or (each not in self.killed and each.code != 0):
                yield f"{each.name} ended with {each.code}"
        begun_in = defaultdict[str, list[Process]](list)
        for process, call in zip(self._called_in, self.history.executions, strict=True):
            begun_in[call.id].append(process)
            if call.outcome != "ok" and process not in self.killed:
                yield f"{call.id} was ended in {process.name}: {call.outcome}"
        for name, processes in begun_in.items():
            struck = sum(each in self.killed for each in processes)
            if len(processes) > 1 + struck:
                yield f"{name} was begun {len(processes)} times, and {struck} of its launches were killed"
        for message in self.history.stored:
            if message.state != State.COMPLETED:
                yield f"{message.id} is {message.state}"

    def who_cannot_get_the_lease_ends_within_its_window(self) -> Iterator[str]:
        longest = self.window + LEAVES_WITHIN
        for process, tenure in self.tenures.items():
            there = process.ended - process.began
            if tenure.began is None and process not in self.killed and there > longest:
                yield f"{process.name} waited in vain, and was there for {there:.1f} s"

    def messages_begin_beyond_the_window_beside_long_ones_alone(self) -> Iterator[str]:
        calls = [*zip(self._called_in, self.history.executions, strict=True)]
        for process, call in calls:
            closes = self._us(self.tenures[process].stop_before)
            beside = [
                other
                for launch, other in calls
                if launch is process and other.started < closes and (other.ended is None or other.ended > call.started)
            ]
            if call.started > closes and not beside:
                late = (call.started - closes) / 1e6
                yield f"{process.name} began {call.id} {late:.1f} s after its window"

    def another_line_does_not_wait(self) -> Iterator[str]:
        for process, tenure in self.tenures.items():
            if self.case.apart and line_of(process) == FAST and process not in self.killed and tenure.waits is not None:
                held = process.ended if tenure.began is None else tenure.began
                if held - tenure.waits > BETWEEN[self.case.platform]:
                    yield f"{process.name} waited {held - tenure.waits:.1f} s"

    def in_each_minute_a_launch_is_there(self) -> Iterator[str]:
        """A holder or a successor; not where one was killed in the minute, or in the one before."""
        there = [each for each in self.tenures.values() if each.waits is not None or each.began is not None]
        for line in {line_of(each.process) for each in there}:
            spans = [each.span() for each in there if line_of(each.process) == line]
            first, last = min(since for since, _ in spans), max(since for since, _ in spans)
            for minute in range(int(first // MINUTE) + 1, int(last // MINUTE)):
                begins, ends = minute * MINUTE, (minute + 1) * MINUTE
                struck = any(begins - MINUTE <= at < ends for at in self.killed.values())
                if not struck and not any(since < ends and until > begins for since, until in spans):
                    yield f"no launch of {line} was there in minute {minute}"

    def free_slots_take_what_waits(self) -> Iterator[str]:
        """Counted for each message is the longest time in which a launch could have begun it, or none was there."""
        began = {call.id: self._s(call.started) for call in self.history.executions}
        longest = BETWEEN[self.case.platform]
        if self.rules.handoff.on_call and self.instances > 1 and not self.case.apart:
            longest += MINUTE  # a holder hears the call in each queue: two may hand over to one, until the next launch
        could = {line: self._could_begin(line) for line in {line_of(each) for each in self.processes}}
        for sent in self.sent:
            line = SLOW if self.case.apart and sent.queue == QUEUES[1] else FAST
            waited = could[line][int(sent.at) + 1 : int(began.get(sent.name, self.world.now))]
            passed = max((len([*those]) for begins, those in groupby(waited) if begins), default=0)
            if passed > longest:
                yield f"{sent.name}, sent at {sent.at:.0f} s, could have begun for {passed} s before it did"

    def _could_begin(self, line: str) -> list[bool]:
        """In each second: whether a message would have begun, as launches are there and have free slots."""
        tenures = [each for each in self.tenures.values() if line_of(each.process) == line and each.began is not None]
        calls = defaultdict[Process, list[tuple[float, float]]](list)
        for process, call in zip(self._called_in, self.history.executions, strict=True):
            calls[process].append((self._s(call.started), self._s(call.ended or self.now_us())))
        closes = {each.process: self._closes(each) for each in tenures}

        def may_begin(process: Process, at: float) -> bool:
            began = [since for since, until in calls[process] if since <= at < until]
            return len(began) < self.rules.slots and (not began or min(began) < closes[process] or at < closes[process])

        def could(at: float) -> bool:
            holding = [each.process for each in tenures if (each.began or 0.0) <= at < each.span()[1]]
            return len(holding) < self.instances or any(may_begin(each, at) for each in holding)

        return [could(float(second)) for second in range(int(self.world.now))]

    def _closes(self, tenure: Tenure) -> float:
        """When a launch begins nothing more, but beside what began before."""
        assert tenure.began is not None
        calls = [
            each.waits + HEARD_WITHIN
            for each in self.tenures.values()
            if self.rules.handoff.on_call
            and each.waits is not None
            and each.waits > tenure.began
            and line_of(each.process) == line_of(tenure.process)
        ]
        return min([tenure.stop_before, *calls])

    def the_ledger_counts_who_left(self) -> Iterator[str]:
        left = sum(each.began is None for each in self.tenures.values())
        counted = sum(entry["skipped"] for entry in launches_of(self.wire, Keys(NAMESPACE), 1000))
        if left != counted:
            yield f"{left} launches left without the lease, and the ledger counts {counted}"

    def _us(self, instant: float) -> int:
        return self.now_us() + round((instant - self.world.now) * 1e6)

    def _s(self, instant_us: int) -> float:
        return self.world.now + (instant_us - self.now_us()) / 1e6


def line_of(process: Process) -> str:
    return process.name.split()[0]
