"""Every interleaving of a few actors on one store, with a bounded number of faults.

Stateless model checking, as in VeriSoft (Godefroid, 1997): a run makes the choices that it is given, then always the
first; the next run changes the last choice that has another alternative. Two runs that reach the same state go on
alike, so the second is cut short. Time stands still unless a scenario advances it.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import suppress
from enum import Enum
from errno import ECONNRESET, ETIMEDOUT
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import greenlet

from pollconsumer.store.client.patience import Clocks, Patience
from pollconsumer.store.client.wire import Wire
from tests.fast_fakeredis.store import FastStore
from tests.simulation.installation import SCRIPT_NAMES, SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Judge = Callable[[], list[str]]
    Scenario = Callable[["Stage"], Judge]

BEGINS = 1_893_456_000.0
"""2030-01-01T00:00Z."""


class Fate(Enum):
    """What becomes of a call. The client repeats one that was lost; a process that dies repeats nothing."""

    CARRIED_OUT = "carried out"
    REQUEST_LOST = "its request is lost"
    REPLY_LOST = "carried out, its reply is lost"
    LATE = "its request is delayed, and given up"
    DIES_BEFORE = "its process dies before it"
    DIES_AFTER = "carried out, and its process dies"
    DIES_LATE = "its request is delayed, and its process dies"


IMMORTAL = (Fate.CARRIED_OUT, Fate.REQUEST_LOST, Fate.REPLY_LOST, Fate.LATE)
DEADLY = (Fate.DIES_BEFORE, Fate.DIES_AFTER, Fate.DIES_LATE)


class Choices:
    """``given``, then always the first alternative."""

    def __init__(self, given: Sequence[int]) -> None:
        self._given = given
        self.made: list[tuple[int, int]] = []
        """Choices, and of how many alternatives each."""

    @property
    def replaying(self) -> bool:
        return len(self.made) < len(self._given)

    def among(self, alternatives: int) -> int:
        choice = self._given[len(self.made)] if self.replaying else 0
        self.made.append((choice, alternatives))
        return choice

    def following(self) -> list[int] | None:
        """The next run's choices; None after the last run."""
        while self.made:
            choice, alternatives = self.made.pop()
            if choice + 1 < alternatives:
                return [*(made for made, _ in self.made), choice + 1]
        return None


class Died(BaseException):
    """Raised in an actor whose process dies: nothing of it runs on."""


class Actor:
    """A process with one connection. ``act`` runs until it calls the store; what it ``saw`` determines what it does."""

    def __init__(self, stage: Stage, name: str, act: Callable[[Actor], None], *, mortal: bool) -> None:
        self.stage, self.name, self.mortal = stage, name, mortal
        self.saw: list[Any] = []
        self.pending: Sequence[Any] = ()
        """The commands that it is about to send; none where it does something else."""
        self._greenlet = greenlet.greenlet(lambda _: self._live(act))

    def _live(self, act: Callable[[Actor], None]) -> None:
        with suppress(Died):
            act(self)

    def runs_in(self, current: greenlet.greenlet) -> bool:
        return self._greenlet is current

    @property
    def done(self) -> bool:
        return self._greenlet.dead

    def go_on(self, fate: Fate) -> None:
        self._greenlet.switch(fate)

    def die(self) -> None:
        self._greenlet.throw(Died)

    def wait(self, commands: Sequence[Any] = ()) -> Fate:
        """Let the others act before it goes on."""
        self.pending = commands
        fate: Fate = self.stage.main.switch()
        return fate

    def wire(self) -> Wire:
        return Wire("redis://explored", Endless, connect=lambda: Link(self), scripts=SCRIPTS)


class Endless(Patience):
    """Patience that does not end: the number of faults does."""

    def left(self) -> float:
        return 1.0

    def pause(self, seconds: float) -> None: ...

    def for_one_answer(self, blocking: float = 0.0) -> float:  # noqa: ARG002  the protocol has it
        return 1.0


class Link:
    """A connection of an actor. Other commands than scripts take no time."""

    location = ""

    def __init__(self, actor: Actor) -> None:
        self._actor, self._stage = actor, actor.stage
        self._replies: deque[Any] = deque()
        self._client = self._stage.next_client()

    def connect(self, timeout: float) -> None:  # noqa: ARG002  the protocol has it
        if any(each.actor is self._actor for each in self._stage.delayed):
            self._actor.wait()

    def send(self, commands: Sequence[Any]) -> None:
        if not any(each[0] == "EVALSHA" for each in commands):
            self._replies.extend(self._stage.execute(each, self._client) for each in commands)
            return
        fate = self._actor.wait(commands)
        if fate is Fate.LATE:
            self._stage.delayed.append(Delayed(self._actor, self._client, commands))
            raise TimeoutError(ETIMEDOUT, "timeout")
        if fate is Fate.REQUEST_LOST:
            raise ConnectionResetError(ECONNRESET, "connection reset")
        replies = [self._stage.execute(each, self._client) for each in commands]
        if fate is Fate.REPLY_LOST:
            raise ConnectionResetError(ECONNRESET, "connection reset")
        self._actor.saw.append(repr(replies))
        self._replies.extend(replies)

    def read(self, timeout: float) -> Any:  # noqa: ARG002  the protocol has it
        return self._replies.popleft()

    def readable(self, timeout: float) -> bool:  # noqa: ARG002  the protocol has it
        return bool(self._replies)

    def fileno(self) -> None: ...

    def close(self) -> None: ...


class Delayed(NamedTuple):
    """A request under way. It is not delivered after its connection is closed on the server."""

    actor: Actor
    client: int
    commands: Sequence[Any]


class Stage:
    """One run: a store, actors on it, and the choices that order them."""

    store: FastStore

    def __init__(self, store: FastStore, choices: Choices, faults: int, clock: Clock) -> None:
        self.store, self._choices, self._faults, self.clock = store, choices, faults, clock
        self.actors: list[Actor] = []
        self.delayed: list[Delayed] = []
        self.story: list[str] = []
        self.happened: list[tuple[str, ...]] = []
        """What a judge sees, in its order."""
        self._clients = 0
        self._draws = Counter[int]()
        self._current: Actor | None = None
        self.main = greenlet.getcurrent()

    def actor(self, name: str, act: Callable[[Actor], None], *, mortal: bool = False) -> None:
        """``mortal``: its process may die."""
        self.actors.append(Actor(self, name, act, mortal=mortal))

    def happens(self, *what: str) -> int:
        """Add to the story what the judge sees. Returns when, in the server's epoch µs: each later than the last."""
        self.happened.append(what)
        self.story.append(" ".join(what))
        return int(self.clock.now * 1_000_000) + len(self.happened)

    def drawn(self, size: int) -> bytes:
        """What `os.urandom` gives: the n-th draw of an actor is the same in every run, so that equal states are seen to
        be equal."""
        acting = greenlet.getcurrent()
        number = next((at for at, each in enumerate(self.actors, 1) if each.runs_in(acting)), 0)
        self._draws[number] += 1
        return number.to_bytes(1, "big") + self._draws[number].to_bytes(size - 1, "big")

    def next_client(self) -> int:
        self._clients += 1
        return self._clients

    def execute(self, command: Sequence[Any], client: int = 0) -> Any:
        if command[0] != "CLIENT":
            return self.store.execute(command)
        if command[1] == "ID":
            return client
        closed = [each for each in self.delayed if each.client == command[3]]
        self.delayed = [each for each in self.delayed if each not in closed]
        return len(closed)

    def play(self, seen: set[int]) -> bool:
        """Whether the run came to its end; not if it reached a state of ``seen``."""
        for actor in self.actors:
            actor.go_on(Fate.CARRIED_OUT)  # until its first call
        while ready := [each for each in self.actors if not each.done]:
            if not self._choices.replaying:
                state = self._state()
                if state in seen:
                    for each in ready:
                        each.die()
                    return False
                seen.add(state)
            # First the one that acted last: the first alternative switches least.
            ready.sort(key=lambda each: each is not self._current)
            choice = self._choices.among(len(ready) + len(self.delayed))
            if choice < len(ready):
                self._current = ready[choice]
                self._act(ready[choice])
            else:
                self._deliver(self.delayed.pop(choice - len(ready)))
        for late in self.delayed:
            self._deliver(late)
        return True

    def _act(self, actor: Actor) -> None:
        fate = Fate.CARRIED_OUT
        if actor.pending and self._faults > 0:
            fates = IMMORTAL + DEADLY if actor.mortal else IMMORTAL
            fate = fates[self._choices.among(len(fates))]
            self._faults -= fate is not Fate.CARRIED_OUT
        if actor.pending:
            self.story.append(f"{actor.name}: {called(actor.pending)}, {fate.value}")
        if fate not in DEADLY:
            actor.go_on(fate)
            return
        if fate is Fate.DIES_AFTER:
            for command in actor.pending:
                self.store.execute(command)
        if fate is Fate.DIES_LATE:
            self.delayed.append(Delayed(actor, 0, actor.pending))
        actor.die()

    def _deliver(self, delayed: Delayed) -> None:
        self.story.append(f"{delayed.actor.name}: {called(delayed.commands)}, delivered late")
        for command in delayed.commands:
            self.store.execute(command)

    def _state(self) -> int:
        return hash(
            (
                self.store.fingerprint(),
                tuple(self.happened),
                self.clock.now,
                self._faults,
                tuple(tuple(each.saw) for each in self.actors),
                tuple((each.done, repr(each.pending)) for each in self.actors),
                tuple((each.client, repr(each.commands)) for each in self.delayed),
            )
        )


class Clock(Clocks):
    """Epoch seconds; every clock of a run."""

    def __init__(self) -> None:
        self.now = BEGINS

    def monotonic(self) -> float:
        return self.now

    boot_time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Explored(NamedTuple):
    """``cut``: runs that reached a state of an earlier one. ``seconds``: by which they set the clock forward.
    ``violations``: what the invariants have against a run, and its story."""

    runs: int
    cut: int
    states: int
    seconds: float
    violations: list[tuple[list[str], list[str]]]


def explore(scenario: Scenario, *, faults: int, stop_at: int = 1) -> Explored:
    """Every run of ``scenario``, which sets up the store and its actors, and returns what judges a run; until
    ``stop_at`` of them violate an invariant."""
    clock = Clock()
    store = FastStore(lambda: clock.now)
    for name in SCRIPT_NAMES.values():
        store.execute(("SCRIPT", "LOAD", SCRIPTS[name].code))
    seen = set[int]()
    runs = cut = 0
    seconds = 0.0
    violations: list[tuple[list[str], list[str]]] = []
    given: list[int] | None = []
    while given is not None and len(violations) < stop_at:
        store.execute(("FLUSHALL",))
        clock.now = BEGINS
        choices = Choices(given)
        stage = Stage(store, choices, faults, clock)
        with mock.patch("os.urandom", stage.drawn):
            judge = scenario(stage)
            ended = stage.play(seen)
        cut += not ended
        if ended:
            runs += 1
            if found := judge():
                violations.append((found, stage.story))
        seconds += max(0.0, clock.now - BEGINS)
        given = choices.following()
    return Explored(runs, cut, len(seen), seconds, violations)


def called(commands: Sequence[Any]) -> str:
    return ", ".join(_names(commands))


def _names(commands: Sequence[Any]) -> Iterator[str]:
    for command in commands:
        yield SCRIPT_NAMES[command[1]] if command[0] == "EVALSHA" else str(command[0])
