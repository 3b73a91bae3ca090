"""A discrete-event simulation: virtual time and actors, of which one runs at a time, by due time and at random."""

from __future__ import annotations

import heapq
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable


class LivelockError(Exception):
    """Actors run without time passing."""


class Actor:
    """A coroutine (greenlet) that runs until it waits. A killed one does not run again, not even its ``finally``
    blocks, before the world ends: the world keeps it, since a greenlet that is collected runs them."""

    def __init__(self, world: World, name: str, run: Callable[[], None]) -> None:
        self.name, self.alive = name, True
        self._world, self._run = world, run
        self._greenlet = greenlet(self._live, world.main)  # which goes on when it ends
        self._turn = self._stops = 0
        self._timer: float | None = None
        self._asleep_since: float | None = None
        self._owed: list[Any] = []

    def kill(self) -> None:
        self.alive = False

    @property
    def suspended(self) -> bool:
        return self._stops > 0

    def suspend(self) -> None:
        self._stops += 1

    def resume(self) -> None:
        """Continue after as many suspensions; what it waited for may have happened."""
        self._stops -= 1
        if self.suspended:
            return
        owed, self._owed = self._owed, []
        for value in owed[:1]:
            self.wake(value)

    def fall_asleep(self) -> None:
        """Be suspended with its machine: its timers stand still, too."""
        self.suspend()
        self._asleep_since = self._world.now

    def wake_up(self) -> None:
        assert self._asleep_since is not None
        slept, self._asleep_since = self._world.now - self._asleep_since, None
        if self._timer is not None:
            self._set_timer(self._timer + slept)
        self.resume()

    def wake(self, value: Any = None) -> None:
        """End its wait immediately."""
        self._world.at(self._world.now, self._resumption(value))

    def go_on(self) -> None:
        """End its wait before anything else happens. Not called by an actor."""
        self._resumption(None)()

    def pause(self, seconds: float | None) -> Any:
        """Called by the actor itself: wait until woken, at most so long. Returns the value of the wake-up, None after
        the timeout."""
        self._turn += 1
        self._timer = None
        if seconds is not None:
            self._set_timer(self._world.now + seconds)
        return self._world.switch_back()

    def begin(self) -> None:
        self._world.at(self._world.now, self._resumption(None))

    def unwind(self) -> None:
        """Run its ``finally`` blocks, after which it can be collected."""
        with suppress(Exception):
            self._greenlet.throw()

    def _set_timer(self, at: float) -> None:
        self._timer, resume = at, self._resumption(None)

        def end() -> None:
            if self._asleep_since is None and self._timer == at:
                resume()

        self._world.at(at, end)

    def _resumption(self, value: Any) -> Callable[[], None]:
        turn = self._turn

        def resume() -> None:
            if self.alive and turn == self._turn:
                if self.suspended:
                    self._owed.append(value)
                else:
                    self._turn += 1
                    self._world.switch_to(self, self._greenlet, value)

        return resume

    def _live(self, _: object) -> None:
        self._run()
        self.alive = False


class World:
    MOST_STEPS_AT_ONCE = 20_000

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self._seed = seed
        self.chance = self.stream("world")
        self.running: Actor | None = None
        self.trace: list[str] = []
        self._due: list[tuple[float, float, int, Callable[[], None]]] = []
        self._number = 0
        self._actors: list[Actor] = []
        self.main = greenlet.getcurrent()
        self._over = False

    def stream(self, name: str) -> random.Random:
        """Random numbers of their own, so that what one actor draws changes nothing that another does."""
        return random.Random(f"{self._seed} {name}")

    def at(self, instant: float, do: Callable[[], None]) -> None:
        """Do it then. The order at one instant is random."""
        self._number += 1
        heapq.heappush(self._due, (instant, self.chance.random(), self._number, do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self.at(self.now + seconds, do)

    def start(self, name: str, run: Callable[[], None]) -> Actor:
        actor = Actor(self, name, run)
        self._actors.append(actor)
        actor.begin()
        return actor

    def run_until(self, instant: float) -> None:
        """Run until then. An uncaught exception of an actor is raised here."""
        steps = 0
        while self._due and self._due[0][0] <= instant:
            at, _, _, do = heapq.heappop(self._due)
            steps = steps + 1 if at <= self.now else 0
            if steps > self.MOST_STEPS_AT_ONCE:
                raise LivelockError(f"at {self.now:.6f} s: {self.trace[-5:]}")
            self.now = max(self.now, at)
            do()
        self.now = max(self.now, instant)

    def run_for(self, seconds: float) -> None:
        self.run_until(self.now + seconds)

    def tell(self, line: str) -> None:
        """A sentence of the story."""
        self.trace.append(f"{self.now:12.6f}  {line}")

    def end(self) -> None:
        """Release what the actors hold: a coroutine that waits is never collected. Nothing can be simulated after."""
        self._over, self.trace = True, []
        self._due.clear()
        for actor in self._actors:
            self.running = actor
            actor.unwind()

    def switch_to(self, actor: Actor, target: greenlet, value: Any) -> None:
        before, self.running = self.running, actor
        try:
            target.switch(value)
        finally:
            self.running = before

    def switch_back(self) -> Any:
        if self._over:
            raise GreenletExit
        return self.main.switch()
