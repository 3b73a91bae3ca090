"""Simulated machines and processes, of which each is a ``Host``."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import LeaseLost, PollConsumerError
from pollconsumer.runtime.launch.board import EMPTIED
from pollconsumer.runtime.launch.heartbeat import GONE, Heartbeat, Parent, keep, requeue_all
from pollconsumer.runtime.launch.launch import Host
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.runtime.system.signals import StopRequest
from pollconsumer.runtime.system.watchdog import EXIT_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pollconsumer.runtime.launch.board import LaunchProgress
    from pollconsumer.runtime.launch.heartbeat import OpenStore
    from pollconsumer.runtime.system.watchdog import LateAct
    from pollconsumer.store.records.reservations import Claim
    from tests.simulation.hosts.network import Link
    from tests.simulation.hosts.world import Actor, World

KILLED = -9
TINY = 1e-9
"""Seconds that a sum of times may be wrong by."""


class Machine:
    """Its clocks have arbitrary offsets, and run a little fast or slow. ``ahead``: seconds by which the time of day has
    been set wrong. While it sleeps, its monotonic clock stands still, and its boot clock does not."""

    def __init__(self, world: World, name: str, *, begin: float = 1000.0, rate: float = 1.0) -> None:
        self.world, self.name, self.rate = world, name, rate
        self._begin = begin - world.now * rate
        self.ahead = self._slept = 0.0
        self._asleep_since: float | None = None
        self.processes: list[Process] = []

    def slept(self) -> float:
        """True seconds for which it has slept so far."""
        return self._slept + (0.0 if self._asleep_since is None else self.world.now - self._asleep_since)

    def awake(self) -> float:
        """True seconds for which it has not. Timers go by them."""
        return self.world.now - self.slept()

    def monotonic(self) -> float:
        return self.awake() * self.rate + self._begin

    def boot_time(self) -> float:
        return self.world.now * self.rate + self._begin

    def actors(self) -> list[Actor]:
        """Of the processes that are alive."""
        self.processes = [each for each in self.processes if each.alive or each.has_heartbeat()]
        return [actor for process in self.processes for actor in process.actors()]

    def sleep_for(self, seconds: float) -> None:
        """All its processes sleep, too."""
        self._asleep_since, asleep = self.world.now, self.actors()
        for each in asleep:
            each.fall_asleep()

        def wake_up() -> None:
            assert self._asleep_since is not None
            self._slept += self.world.now - self._asleep_since
            self._asleep_since = None
            for each in asleep:
                each.wake_up()

        self.world.after(seconds, wake_up)


class Process(Host):
    """A process, and the heartbeat that it forks. ``code`` is its exit code, None while it lives."""

    def __init__(self, machine: Machine, name: str, main: Callable[[Process], int]) -> None:
        self.machine, self.world, self.name = machine, machine.world, name
        self.code: int | None = None
        self.began = self.ended = self.world.now
        self.signals = StopRequest()
        self.heartbeat: SimulatedHeartbeat | None = None
        self._started = machine.monotonic()
        self._main = main
        self._last_acts: list[Callable[[], None]] = []
        self._watchdog: tuple[LaunchEnd, Callable[[], str]] | None = None
        self._waits_for_end: list[Actor] = []
        self.links: list[Link] = []
        self.children: list[Actor] = []
        """Of isolated handlers."""
        self.threads: list[Actor] = []
        """Beside its main one."""
        self.stream = self.world.stream(name)
        self._number = self.stream.getrandbits(32)
        self.actor = self.world.start(name, self._live)
        machine.processes.append(self)

    # Host

    def monotonic(self) -> float:
        return self.machine.monotonic()

    def boot_time(self) -> float:
        return self.machine.boot_time()

    def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``, even if woken."""
        until = self.machine.awake() + seconds / self.machine.rate
        while (left := until - self.machine.awake()) > TINY:
            self.pause(left)

    def pause(self, seconds: float | None) -> Any:
        """Wait for true seconds, or until woken."""
        assert self.world.running is not None
        return self.world.running.pause(seconds)

    def started_at(self) -> float:
        return self._started

    def new_id(self) -> str:
        return f"{self._number:08x}"

    def chance(self) -> float:
        return self.stream.random()

    def all_gone(self, namespace: str, births: Mapping[str, str]) -> bool:  # noqa: ARG002  no process sees others here
        return False

    def leave_by(self, instant: float) -> None:
        """Exits take the time that the machine gives them."""

    def before_exit(self, act: LateAct) -> None:
        raise NotImplementedError("a simulated launch has neither hooks nor a monitor")

    def at_exit(self, act: Callable[[], None]) -> None:
        self._last_acts.append(act)

    def processes(self, heartbeat_pid: int) -> dict[str, Any]:  # noqa: ARG002  `Host` has it
        return {"host": self.machine.name, "pid": self._number % 30000, "namespace": "", "births": {}}

    def catch_signals(self) -> StopRequest:
        return self.signals

    def start_heartbeat(
        self, progress: LaunchProgress, open_store: OpenStore, on_launch_death: Callable[[int], None] | None
    ) -> SimulatedHeartbeat:
        self.heartbeat = SimulatedHeartbeat(self, progress, open_store, on_launch_death)
        return self.heartbeat

    def watch(self, end: LaunchEnd, last_act: Callable[[], str]) -> None:
        self._watchdog = end, last_act
        self._look(self._watchdog)

    def extend(self, end: LaunchEnd) -> None:
        """Nothing holds a GIL here."""

    def expect_exit(self) -> None:
        self._watchdog = None

    def _look(self, watched: tuple[LaunchEnd, Callable[[], str]]) -> None:
        """Look, at what was the hard end, whether it still is."""
        end, last_act = watched
        if self.code is not None or self._watchdog is not watched:
            return
        left = (end.hard_end() - self.monotonic()) / self.machine.rate
        if left > TINY:
            self.world.after(left, lambda: self._look(watched))
        else:
            self.world.tell(f"{self.name}: {last_act()}")
            self.end(EXIT_CODE)

    # Faults

    @property
    def alive(self) -> bool:
        return self.code is None

    def has_heartbeat(self) -> bool:
        """It may outlive the process."""
        return self.heartbeat is not None and self.heartbeat.actor.alive

    def actors(self) -> list[Actor]:
        heartbeat = [self.heartbeat.actor] if self.heartbeat is not None else []
        return [self.actor, *self.threads, *heartbeat, *self.children]

    def signal(self, number: int) -> None:
        self.signals.signal = number

    def end(self, code: int = KILLED) -> None:
        """Kill it immediately."""
        if self.code is None:
            self.code, self.ended = code, self.world.now
            for each in (self.actor, *self.threads, *self.children):
                each.kill()
            self.world.tell(f"{self.name}: ended with {code}")
            ours = {self.actor, *self.threads}
            for link in [link for link in self.links if link.owner in ours]:
                link.close()
            for waiting in self._waits_for_end:
                waiting.wake(True)

    def start_child(self, name: str, live: Callable[[], None]) -> Actor:
        self.children = [each for each in self.children if each.alive]
        self.children.append(self.world.start(name, live))
        return self.children[-1]

    def start_thread(self, name: str, live: Callable[[], None]) -> None:
        self.threads = [each for each in self.threads if each.alive or any(link.owner is each for link in self.links)]
        self.threads.append(self.world.start(name, live))

    def link(self, descriptor: int | None) -> Link | None:
        """By its descriptor."""
        return next((each for each in self.links if each.fileno() == descriptor), None)

    def wait_for_end(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        if self.code is None and seconds > 0:
            assert self.world.running is not None
            self._waits_for_end.append(self.world.running)
            self.world.running.pause(seconds)
            self._waits_for_end.remove(self.world.running)
        return self.code is not None

    def _live(self) -> None:
        code = self._main(self)
        for act in self._last_acts:
            with suppress(PollConsumerError):
                act()
        self.end(code)


class SimulatedHeartbeat(Heartbeat, Parent):
    """The launch's side, and the heartbeat's loop, which runs as a separate actor."""

    pid = 0

    def __init__(
        self,
        process: Process,
        progress: LaunchProgress,
        open_store: OpenStore,
        on_launch_death: Callable[[int], None] | None,
    ) -> None:
        self.process, self._progress = process, progress
        self._open_store, self._on_launch_death = open_store, on_launch_death
        self._order: tuple[Claim, LaunchEnd] | None = None
        self.name = f"{process.name}'s heartbeat"
        self.actor = process.world.start(self.name, self._live)

    def hold(self, claim: Claim, end: LaunchEnd) -> None:
        if not self.actor.alive:
            raise LeaseLost("lease not renewed", None, GONE)
        self._order = claim, LaunchEnd(self._progress.flight, end.stop_before, end.grace)
        self.actor.wake()

    def is_alive(self) -> bool:
        return self.actor.alive and not self.actor.suspended

    def stop(self) -> None:
        self.actor.kill()

    def ends_within(self, seconds: float) -> bool:
        return self.process.wait_for_end(seconds / self.process.machine.rate)

    def is_suspended(self) -> bool:
        return self.process.actor.suspended

    def call(self) -> None:
        self._progress.stops.called()

    def kill(self) -> None:
        """Nothing holds a GIL here, but the exit of a launch that has ended may take too long."""
        self.killed = True
        self.process.end()

    def _live(self) -> None:
        while self._order is None:
            if self.ends_within(1.0):
                return
        leases, store, _ = self._open_store()
        keep(self, self._progress, leases, *self._order, self.process, self._tell)
        if self._on_launch_death is not None:
            self._on_launch_death(0)
        if self._progress.trusted[0] != EMPTIED:
            requeue_all(self._progress, leases, store, *self._order, self.process, self._tell)

    def _tell(self, line: str) -> None:
        self.process.world.tell(f"{self.name}: {line}")
