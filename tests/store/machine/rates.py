"""What a rate should do, in plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.store.acting import HOUR

RATES = {"r1": (1, 2), "r2": (2, 3)}
"""By rate key: most messages, and hours of the period."""


class Handed(NamedTuple):
    """A message that was handed out, ``now`` or ``aged`` since."""

    name: str
    at: float
    aged: bool = False


@dataclass
class Ledger:
    """Of one key, in epoch ms. Time passes by whole hours: what a test takes itself counts for nothing."""

    most: int
    period: int
    handed: list[Handed] = field(default_factory=list)
    booked: list[float] = field(default_factory=list)

    def slot(self, now: float, *, waited: bool) -> float | None:
        """When a message may be handed out, None for now. Books it."""
        self._lapse(now)
        if len(self.handed) + (0 if waited else len(self.booked)) < self.most:
            return None
        slot = None
        if waited:
            self._unbook(now)
            free = Counter(each.at + self.period for each in self.handed) - Counter(self.booked)
            slot = min(free, default=None)
        if slot is None:
            instants = [*(each.at for each in self.handed), *(max(now, at) for at in self.booked)]
            slot = instants[-self.most] + self.period
        self.booked = sorted([*self.booked, slot])[-2 * self.most :]
        return slot

    def charge(self, name: str, now: float, *, waited: bool) -> None:
        self.handed.append(Handed(name, now))
        if waited:
            self._unbook(now)

    def refund(self, name: str) -> None:
        if (charged := next((each for each in self.handed if each.name == name and not each.aged), None)) is not None:
            self.handed.remove(charged)

    def correct_booking(self, at: float, due: float) -> None:
        """As the store's clock shows it, to compare bookings exactly."""
        if at in self.booked:
            self.booked[self.booked.index(at)] = due
            self.booked.sort()

    def correct_charge(self, name: str, at: float) -> None:
        last = max(i for i, each in enumerate(self.handed) if each.name == name)
        self.handed[last] = Handed(name, at)

    def give_back(self, due: float | None, others: list[float], now: float) -> None:
        """A booked message is not handed out: it was scheduled for ``due``, or is ready. ``others``: when the other
        booked ones are due."""
        at = next((i for i, each in enumerate(self.booked) if each == due or due is None), None)
        if at is None or (due is None and self.booked[0] > now):
            return
        first, full = self.booked[0], len(self.booked) >= 2 * self.most
        del self.booked[at]
        before = sorted(each for each in others if now <= each <= first)
        before = before[: len(before) - self.booked.count(first)]
        if full and before:
            self.booked.insert(0, before[-1])

    def age(self, ms: int) -> None:
        self.handed = [Handed(name, at - ms, aged=True) for name, at, _ in self.handed]
        self.booked = [at - ms for at in self.booked]

    def _lapse(self, now: float) -> None:
        self.handed = [each for each in self.handed if each.at > now - self.period]
        self.booked = [at for at in self.booked if at > now - self.period]

    def _unbook(self, now: float) -> None:
        if self.booked and self.booked[0] <= now:
            del self.booked[0]


def ledgers() -> dict[str, Ledger]:
    return {key: Ledger(most, hours * HOUR) for key, (most, hours) in RATES.items()}


def rate_of(key: str) -> str:
    most, hours = RATES[key]
    return f"{most}/{hours}h"
