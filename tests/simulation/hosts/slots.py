"""Several slots of a simulated launch: each handler runs in an actor, as it does in a thread of a real launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.runtime.handling.executors import Executor, Handled
from tests.simulation.hosts.process import TINY

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.runtime.handling.executors import Attempt
    from pollconsumer.store.records.reservations import Reservation
    from tests.simulation.hosts.process import Process
    from tests.simulation.hosts.world import Actor, World


class ActorLock:
    """A lock of actors: one that waits for it lets the others run."""

    def __init__(self, world: World) -> None:
        self._world, self._held = world, False
        self._waiting: list[Actor] = []

    def __enter__(self) -> None:
        while self._held:
            assert self._world.running is not None
            self._waiting.append(self._world.running)
            self._world.running.pause(None)
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False
        if self._waiting:
            self._waiting.pop(0).wake()


class Slots(Executor):
    """As ``ThreadExecutor``."""

    def __init__(self, process: Process, slots: int) -> None:
        self.slots = slots
        self._process, self.busy = process, 0
        self._finished: list[Handled] = []
        self._woken = False
        self._waiting: Actor | None = None

    def lock(self) -> ActorLock:
        return ActorLock(self._process.world)

    def start(self, attempt: Attempt) -> None:
        self.busy += 1
        self._process.start_thread(f"{self._process.name}'s slot", self._handling(attempt))

    def stop(self, reservation: Reservation, seconds: float, in_flight: Callable[[], bool]) -> None:
        """Nobody asks for it."""

    def finished(self) -> list[Handled]:
        finished, self._finished = self._finished, []
        self.busy -= len(finished)
        return finished

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        machine, link = self._process.machine, self._process.link(descriptor)
        until = machine.awake() + seconds
        self._waiting = self._process.world.running
        while not self._woken and not (link is not None and link.watched_by(self._waiting)):
            left = until - machine.awake()
            if left <= TINY:
                break
            self._process.pause(left)
        self._waiting, self._woken = None, False
        if link is not None:
            link.watched_by(None)

    def _wake(self) -> None:
        self._woken = True
        if self._waiting is not None:
            self._waiting.wake()

    def close(self) -> None: ...

    def _handling(self, attempt: Attempt) -> Callable[[], None]:
        def handle() -> None:
            started = self._process.monotonic()
            outcome = attempt.handle()
            self._finished.append(Handled(attempt, started, self._process.monotonic(), outcome))
            self._wake()

        return handle
