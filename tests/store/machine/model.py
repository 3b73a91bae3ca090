"""What the store should do, in plain Python: no packed rows, no scores by key, no counters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pollconsumer.core.lifecycle import State
from tests.store.acting import HOUR
from tests.store.machine.rates import Ledger, ledgers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.core.messages.message_steps import Progress
    from pollconsumer.store.records.reservations import Reservation
    from pollconsumer.store.records.steps import Limits

LIMITS = {"c1": 1, "c2": 2}
"""Most messages in flight by concurrency key."""
TICKS = 1024


@dataclass
class Held:
    """A message. ``due`` is of a scheduled one, ``ready_ms`` of one that is or was ready, both in epoch ms."""

    name: str
    state: State
    priority: int = 0
    key: str = ""
    concurrency: str = ""
    order: str = ""
    due: float = 0
    ready_ms: int = 0
    attempts: int = 0
    generation: int = 0
    parked: bool = False
    waiting: bool = False
    rate_key: str = ""
    booked: bool = False
    begun: bool = False
    checkpoint: bytes | None = None
    steps: list[bytes] = field(default_factory=list)
    awaited: str = ""
    """The signal that it awaits, by its last step."""
    signals: dict[str, int] = field(default_factory=dict)
    has_kept: bool = False
    """Whether its row says that it has a checkpoint, or steps."""
    progress: Progress | None = None
    to_stop: bool = False
    reservation: Reservation | None = None
    rank: tuple[int, int, str] = (0, 0, "")
    """Where it stands among those behind the head of its order key."""
    turn: int = 0
    """Its number among all that were ever reserved, where it is."""
    digest: str = ""
    headers: Mapping[str, str] | None = None
    payload: bytes = b"{}"
    expires: int = 0
    """In epoch ms, 0 for never."""

    def drop_kept(self) -> None:
        """Forget its checkpoint, steps and signals."""
        self.checkpoint, self.steps, self.awaited, self.signals = None, [], "", {}


@dataclass
class Model:
    """``stamp`` tells when the store says that a message became ready, ``now`` what its clock says, in epoch ms."""

    stamp: Callable[[str], int]
    now: Callable[[], int]
    messages: dict[str, Held] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    """Ready ones of priority 0, and ids that were taken out and not popped yet."""
    scores: dict[str, int] = field(default_factory=dict)
    """Ready ones of another priority."""
    lines: dict[str, dict[str, tuple[int, int]]] = field(default_factory=lambda: {key: {} for key in LIMITS})
    """By concurrency key those that stand in line, with their place in it."""
    heads: dict[str, str] = field(default_factory=dict)
    """By order key the message that the others wait for."""
    behind: dict[str, list[str]] = field(default_factory=dict)
    """By order key those that wait for its head, in their order."""
    keys: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Unique keys: holder, and hours until it is none."""
    results: dict[str, str] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    """Results of forgotten messages, whose ids were used again before the results' time was over."""
    young: dict[str, str] = field(default_factory=dict)
    """Ids that are forgotten, with their digests; those that were forgotten a while ago are old."""
    old: dict[str, str] = field(default_factory=dict)
    skipped: int = 0
    settled: Counter[str] = field(default_factory=Counter)
    """By outcome."""
    paused: bool = False
    spent: int = 0
    """Of the quota."""
    ledgers: dict[str, Ledger] = field(default_factory=ledgers)
    """By rate key."""
    _tick: int = 0
    _number: int = 0
    _turn: int = 0
    _back: int = 0

    # Questions

    def having(self, *states: State) -> list[str]:
        return [name for name, held in self.messages.items() if held.state in states]

    def reserved(self) -> list[str]:
        """In the order in which they were."""
        return sorted(self.having(State.RESERVED), key=lambda name: self.messages[name].turn)

    def in_flight(self, key: str) -> int:
        return sum(h.state is State.RESERVED and h.concurrency == key for h in self.messages.values())

    def ready(self) -> list[str]:
        """In the order in which they will be handed out, whatever their concurrency keys say."""
        ranked = sorted(self.scores, key=lambda name: (self.scores[name], name))
        sooner = [name for name in ranked if self.messages[name].priority < 0]
        standing = [name for name in self.queue if self.can_be_popped(name)]
        return [*sooner, *dict.fromkeys(standing), *ranked[len(sooner) :]]

    def can_be_popped(self, name: str) -> bool:
        held = self.messages.get(name)
        return held is not None and held.state is State.READY and not held.waiting

    def line(self, key: str) -> list[str]:
        places = self.lines[key]
        return sorted(places, key=lambda name: (places[name], name))

    def room(self, limits: Limits | None) -> float:
        most = limits.max_in_flight if limits else None
        quota = limits.quota if limits else None
        room = float("inf") if most is None else most - len(self.having(State.RESERVED))
        return room if quota is None else min(room, quota - self.spent)

    def holder(self, key: str) -> str | None:
        name, hours = self.keys.get(key, ("", 0.0))
        return name if hours > 0 else None

    def digest(self, name: str) -> str | None:
        """That of a message with this id that is there or remembered, None where there is none."""
        held = self.messages.get(name)
        return held.digest if held else self.young.get(name, self.old.get(name))

    def conflict(self, batch: Iterable[NewMessage]) -> int | None:
        """The position of the first message of which its id has another digest."""
        accepted, keys = dict[str, str](), set[str]()
        for at, new in enumerate(batch):
            digest = accepted.get(new.id, self.digest(new.id))
            if digest is None and not (new.key and (new.key in keys or self.holder(new.key))):
                accepted[new.id] = new.digest
                keys.add(new.key)
            elif digest and new.digest and digest != new.digest:
                return at
        return None

    # What happens

    def drop_result(self, name: str) -> None:
        """Another message has its id."""
        if self.results.pop(name, None) is not None:
            self.dropped[name] += 1

    def forget_result(self, name: str) -> None:
        """The time of a result of a message of that name is over."""
        if self.dropped[name]:
            self.dropped[name] -= 1
        else:
            del self.results[name]

    def script(self) -> None:
        """A script begins."""
        self._back = 0

    def accept(self, message: NewMessage, soon: float) -> str | None:
        """A message that is enqueued, due if before ``soon``. Returns whose duplicate it is."""
        holder = self.holder(message.key) if self.digest(message.id) is None else message.id
        if holder is not None:
            return holder
        held = Held(message.id, State.SCHEDULED, message.priority, message.key, message.concurrency_key)
        held.digest, held.headers, held.rate_key = message.digest, message.headers, message.rate_key
        held.payload, held.order = message.payload, message.order_key
        self.messages[message.id] = held
        self.drop_result(message.id)
        if message.key:
            self.keys[message.key] = (message.id, message.key_lifetime / HOUR or float("inf"))
        if message.due and message.due > soon:
            held.due = message.due
        else:
            self.make_ready(held)
        if message.lifetime:
            held.expires = int(held.due or held.ready_ms) + message.lifetime
        return None

    def replace(self, new: NewMessage, soon: float) -> str | None:
        """A message that is to replace the one that waits with its key. Returns which it has replaced, or whose
        duplicate it is."""
        holder = self.holder(new.key)
        if new.id in self.messages:
            return new.id
        if self.digest(new.id) is not None:
            return holder or new.id
        if holder is None or self.messages[holder].state is State.RESERVED:
            self.keys.pop(new.key, None)
            return self.accept(new, soon)
        held = self.messages[holder]
        if held.attempts or held.has_kept:
            held.drop_kept()
            held.attempts, held.has_kept, held.generation = 0, False, held.generation + 1
        held.payload, self.young[new.id] = new.payload, ""
        self.keys[new.key] = (holder, new.key_lifetime / HOUR or float("inf"))
        if (new.due and new.due > soon) or not held.booked:
            self.wait_anew(held, new.due, soon)
        return holder

    def wait_anew(self, held: Held, due: float | None, soon: float) -> None:
        """One that is not reserved has another due time."""
        if due and due > soon:
            later = held.state is State.READY or due > held.due
            if held.state is State.READY:
                self.lose_turn(held)
            self.give_back(held)
            held.state, held.due = State.SCHEDULED, due
            if later:
                self.pass_on(held)
        elif held.state is State.SCHEDULED:
            self.give_back(held)
            self.make_ready(held)

    def make_ready(self, held: Held) -> None:
        held.state, held.ready_ms = State.READY, self.stamp(held.name)
        if held.priority == 0:
            self.queue.append(held.name)
        else:
            self._tick = max(self._tick + 1, held.ready_ms * TICKS)
            self.scores[held.name] = held.priority * HOUR * TICKS + self._tick

    def put_back(self, held: Held) -> None:
        if held.priority == 0:
            self.queue.insert(0, held.name)
        else:
            self.scores[held.name] = (held.priority * HOUR + held.ready_ms) * TICKS - 1 - self._back
        self._back += 1

    def offer(self, key: str) -> None:
        """The places that are free, to the first in line."""
        free = max(0, LIMITS[key] - self.in_flight(key))
        for name in reversed(self.line(key)[:free]):
            held = self.messages[name]
            if held.waiting:
                held.waiting = False
                self.put_back(held)

    def stand_in_line(self, held: Held, number: int) -> None:
        self.lines[held.concurrency].setdefault(held.name, (held.ready_ms + held.priority * HOUR, number))
        held.waiting = True

    def wait_behind(self, held: Held, accepted: int | None = None) -> None:
        """Wait for the head of its order key; before the others, if it is redriven, in the order of acceptance."""
        self._number += 1
        held.rank = (1, self._number, "") if accepted is None else (0, accepted // 2, held.name)
        held.waiting = True
        behind = self.behind.setdefault(held.order, [])
        behind.append(held.name)
        behind.sort(key=lambda name: self.messages[name].rank)

    def pass_on(self, held: Held) -> None:
        """The next one of its order key is the head, if ``held`` was."""
        if held.order and self.heads.get(held.order) == held.name:
            del self.heads[held.order]
            self.name_head(held.order)

    def name_head(self, order: str) -> None:
        """Make the first of those that wait the head of an order key, if that has none."""
        behind = self.behind.get(order)
        if order in self.heads or not behind:
            return
        self.heads[order] = behind.pop(0)
        head = self.messages[self.heads[order]]
        head.waiting = False
        self.put_back(head)

    def come_back(self, held: Held) -> None:
        held.state, held.reservation = State.READY, None
        if held.concurrency:
            self._number += 1
            self.stand_in_line(held, -self._number)
            self.offer(held.concurrency)
        else:
            self.put_back(held)

    def take_out(self, held: Held) -> None:
        """Of what is ready, before it is cancelled or waits anew."""
        self.script()
        self.give_back(held)
        offered, key = not held.waiting, held.concurrency
        if held.name in (behind := self.behind.get(held.order, [])):
            behind.remove(held.name)
        held.waiting = False
        self.scores.pop(held.name, None)
        if key:
            self.lines[key].pop(held.name, None)
        if key and offered:
            held.state = State.SCHEDULED  # it takes no place from now on
            self.offer(key)

    def lose_turn(self, held: Held) -> None:
        """Of what is ready, before it waits anew."""
        self.take_out(held)
        if held.priority == 0 and held.name in self.queue:
            self.queue.remove(held.name)

    def hand_out(self, wanted: int, limits: Limits | None) -> list[str]:
        """Reserve. Returns which."""
        handed: list[str] = []
        given_up: list[str] = []
        now = self.now()
        wanted = 0 if self.paused else int(max(0, min(wanted, self.room(limits))))
        while len(handed) < wanted and (name := self._pop()) is not None:
            held = self.messages.get(name)
            if held is None or not self.can_be_popped(name):
                continue
            held.parked = False
            if held.order and self.heads.setdefault(held.order, name) != name:
                self.wait_behind(held)
                continue
            key, rate = held.concurrency, self.ledgers.get(held.rate_key)
            slot = rate.slot(now, waited=held.booked) if rate else None
            if slot is not None:
                if key and name in self.lines[key]:
                    del self.lines[key][name]
                    given_up.append(key)
                held.state, held.due, held.booked = State.SCHEDULED, slot, True
                continue
            if key and self.in_flight(key) >= LIMITS[key]:
                self._number += 1
                self.stand_in_line(held, self._number)
                continue
            if key:
                self.lines[key].pop(name, None)
            if rate:
                rate.charge(name, now, waited=held.booked)
            held.state, held.booked = State.RESERVED, False
            held.attempts += 1
            self._turn += 1
            held.turn = self._turn
            handed.append(name)
        if limits and limits.quota is not None:
            self.spent += len(handed)
        for key in given_up:
            self.offer(key)
        return handed

    def refund(self, held: Held) -> None:
        if held.rate_key:
            self.ledgers[held.rate_key].refund(held.name)

    def give_back(self, held: Held) -> None:
        if held.booked:
            held.booked = False
            there = [each for each in self.messages.values() if each.booked and each.rate_key == held.rate_key]
            others = [each.due for each in there if each.state is State.SCHEDULED]
            due = held.due if held.state is State.SCHEDULED else None
            self.ledgers[held.rate_key].give_back(due, others, self.now())

    def _pop(self) -> str | None:
        ranked = sorted(self.scores, key=lambda name: (self.scores[name], name))
        first = self.messages.get(self.queue[0]) if self.queue else None
        left_over = self.queue and (first is None or first.state is not State.READY)
        if left_over or (self.queue and (not ranked or self.messages[ranked[0]].priority > 0)):
            return self.queue.pop(0)
        if ranked:
            del self.scores[ranked[0]]
        return ranked[0] if ranked else None

    def end(self, held: Held, state: State, *, passes: bool = True) -> None:
        """End it as ``state``, from any other. ``passes``: the next of its order key goes on."""
        if held.to_stop and state is State.CANCELLED:
            held.to_stop = False
        elif state is not State.DEAD and (state is State.CANCELLED or held.has_kept):
            held.drop_kept()
        self.give_back(held)
        held.state, held.reservation, held.waiting = state, None, False
        if held.key and self.keys.get(held.key, ("", 0))[0] == held.name:
            del self.keys[held.key]
        if passes:
            self.pass_on(held)

    def leave(self, left: Iterable[Held], returned: Iterable[Held]) -> None:
        """What was in flight, and has its new state by now, leaves its place; what returns does so after that."""
        freed = list(dict.fromkeys(held.concurrency for held in left if held.concurrency))
        for key in reversed(freed):
            self.offer(key)
        for held in returned:
            self.come_back(held)

    def forget(self, name: str) -> None:
        self.pass_on(self.messages[name])
        held = self.messages.pop(name)
        assert held.state.has_ended
        self.young[name] = held.digest

    def forget_old_ids(self) -> None:
        if self.young or self.old:
            self.young, self.old = {}, self.young
