"""The lease: an expiring, renewed right to be the one consumer, or the one mover. And the ledger of launches.

A lease belongs to a group: a role and, for consumers, the queues that they serve. A group has one slot for each
instance, and a lease is named after its group and slot. Whoever acquires a lease gets a fence, higher than all earlier
ones of the namespace. The lease is for efficiency: it prevents two launches from doing the same work. The fence is for
safety: a queue refuses every fence older than the newest that was announced to it for the same lease (Kleppmann, "How
to do distributed locking", 2016).

The times are those of Kubernetes' leader election, in seconds. A holder trusts its lease for a shorter time than the
server grants it, counted on the boot clock from before the request."""

import re
from collections.abc import Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from pollconsumer.core.durations import GENERATION, LAST, Histogram
from pollconsumer.core.errors import StoreRefused
from pollconsumer.store.audit_log import demand_operator, note
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.client.wire import Watermarks, Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.records.rows import id_text
from pollconsumer.store.rights import LAUNCH, demand
from pollconsumer.store.server import TIME, count_of, to_ms

_TEXT = rb"(\d+(?:\.\d+)?(?:e[+-]\d+)?)((?: \d{1,3}:\d{1,15})+)"
TTL = 15.0
RENEW_EVERY = 5.0
TRUSTED_FOR = 10.0
SUCCESSOR_TTL = 3.0
UNNOTICED = 10.0
"""Seconds by which a server's clock may be set back without consequences."""
LAUNCHES_KEPT = 5_000
"""Least number of launches that the ledger keeps."""
MOST_LAUNCHES_KEPT = 20_000
"""Maximum number of launches in the ledger. Up to it, all those of the last two days are kept."""
GENERATIONS = ("durations", "durations_before")


def write_histogram(histogram: Histogram) -> str:
    """A histogram as stored text, ``0.75 12:3 40:1``: the sum in seconds, then each bucket's number and count."""
    return f"{histogram.total:.9g}" + "".join(f" {bucket}:{count}" for bucket, count in histogram.counts.items())


def read_histogram(text: bytes | None) -> Histogram | None:
    """The histogram in stored text. None if the text is missing or corrupt."""
    read = re.fullmatch(_TEXT, text or b"")
    if read is None or (total := float(read[1])) == inf:
        return None
    pairs = (each.split(b":") for each in read[2].split())
    counts = {int(bucket): int(count) for bucket, count in pairs}
    return Histogram(total, counts) if max(counts) <= LAST else None


def set_back_by(reached_ms: int, now_ms: int) -> float:
    """Seconds by which the server's clock was set back: it had reached ``reached_ms``, and now shows ``now_ms``. 0 for
    a small difference, since the clocks of a cluster's nodes differ."""
    by = (reached_ms - now_ms) / 1000
    return by if by > UNNOTICED else 0.0


class Group(NamedTuple):
    """The launches that share leases. ``handlers``: a digest of their handlers' names. It is not part of ``name``,
    which is ``consumer:queue,queue`` or ``mover:``, so a new version of a project takes over from the old one."""

    role: str
    queues: tuple[str, ...]
    slots: int
    handlers: str = ""

    @property
    def name(self) -> str:
        return f"{self.role}:{','.join(self.queues)}"


class HeldLeases(NamedTuple):
    """The answer of `acquire` if all leases of the group are held. ``lapses_in``: seconds until the first may expire.
    ``signs``: for each holder, a text that changes at each renewal. ``holders``: their descriptions."""

    lapses_in: float
    signs: tuple[str, ...]
    holders: tuple[bytes, ...]

    def newest_fence(self) -> int:
        return max(int(sign.partition(":")[0]) for sign in self.signs)


class TurnedAway(NamedTuple):
    """The answer of `acquire` if all leases are held and another launch waits already. ``holders``: descriptions of the
    holders; empty if instead the store is about to be closed."""

    holders: tuple[bytes, ...]


class Leases:
    """The leases and the ledger of a namespace. All their keys are in one slot of a cluster."""

    def __init__(self, wire: Wire, namespace: str, *, refuse_rollback: bool = False) -> None:
        self._wire = wire
        self._keys = Keys(namespace)
        self._allowed = False
        self.refuse_rollback = refuse_rollback
        self.paused_handlers: frozenset[str] = frozenset()
        """Own names of the launch's handlers that were paused at the last call of `learned`."""
        self.recent: tuple[bytes, ...] = ()
        """The newest entries of the ledger, newest first, of all groups. Set by `acquire`."""
        self.rollback: tuple[int, int] | None = None
        """If the last renewal found a lower watermark than the store had: the higher and the lower one. Else None."""

    def demand_rights(self) -> None:
        """Raise PermissionDenied if the store's user lacks a launch's rights."""
        if not self._allowed:
            demand(self._wire, LAUNCH, self._keys.control("fences"))  # GUARD rights of a launch
            self._allowed = True

    def acquire(
        self, group: Group, launch: str, description: str, entry: str, *, dead: Iterable[str] = (), waits: bool = True
    ) -> Claim | HeldLeases | TurnedAway:
        """Take a lease of ``group``. If none is free and the launch ``waits``, it becomes the group's only successor,
        if possible.

        ``description`` and ``entry``: JSON for `lease show` and for `launches`. ``dead``: signs of holders that have
        not renewed for long by the caller's clock; their leases are taken even if the server has not expired them.
        PermissionDenied if a launch's rights are missing."""
        self.demand_rights()
        control = self._keys.control
        lease_names = [f"{group.name}:{slot}" for slot in range(group.slots)]
        keys = [
            control("fences"), control(f"next:{group.name}"), control(f"baton:{group.name}"), control("leases"),
            control("launches"), control("ledger"), control("closing"),
            *(control(f"lease:{lease_name}") for lease_name in lease_names),
        ]  # fmt: skip
        ttls = [int(TTL * 1000), int(SUCCESSOR_TTL * 1000) if waits else 0]
        args = [launch, *ttls, f"{group.name}:", LAUNCHES_KEPT, MOST_LAUNCHES_KEPT]
        args += [description, entry, self._wire.watermarks.greatest, *dead]
        answer = self._wire.call("acquire", keys, args)
        if answer[0] < 0:
            return TurnedAway(tuple(answer[1]))
        if answer[0] == 0:
            return HeldLeases(answer[1] / 1000, tuple(sign.decode() for sign in answer[2]), tuple(answer[3]))
        _, slot, fence, at, recent = answer
        self._reach(int(fence))
        self.recent = tuple(filter(None, recent))
        return Claim(lease_names[slot], fence.decode(), group.name, slot, at, launch, description)

    def withdraw(self, group: Group, launch: str) -> None:
        """Stop waiting, so that another launch can be the successor. The holder's entry counts this launch as
        skipped."""
        names = (f"next:{group.name}", f"lease:{group.name}:0", "ledger")
        self._wire.call("withdraw", [self._keys.control(name) for name in names], [launch])

    def wait(self, group: Group, seconds: float) -> None:
        """Wait until a lease of the group is released, at most ``seconds``."""
        try:
            command = ("BLPOP", self._keys.control(f"baton:{group.name}"), f"{max(0.001, seconds):.3f}")
            self._wire.once([command], blocking=seconds)
        except Unanswered:
            self._wire.close()

    def call_for_hand_over(self, group: Group, fence: int, seconds: float) -> None:
        """Ask one holder of the group to hand over; a holder reads this at its next step. The call ends after
        ``seconds``. ``fence``: the newest of the holders' fences, so that later holders ignore the call."""
        calls = [
            (self._keys.queue(queue, "successor_waits"), self._keys.queue(queue, "ready_marker"))
            for queue in group.queues
        ]
        for sign, marker in calls or [(self._keys.control("successor_waits"), self._keys.control("queues_marker"))]:
            self._wire.call("nudge", [f"{sign}:{group.name}", marker], [max(1, int(seconds * 1000)), fence])

    def take_call(self, claim: Claim) -> bool:
        """Whether a successor has asked a mover to hand over since the last look. Consumers learn that from steps."""
        key = f"{self._keys.control('successor_waits')}:{claim.group}"
        called = self._wire.command("GET", key) or b""
        if not called.isdigit() or int(called) < int(claim.fence):  # one that comes meanwhile stays
            return False
        self._wire.command("DEL", key)
        return True

    def live_fences(self) -> list[bytes]:
        """The fences of all leases that are held."""
        lease_names = self._wire.command("SMEMBERS", self._keys.control("leases"))
        keys = [self._keys.control(f"lease:{id_text(lease_name)}") for lease_name in lease_names]
        fences = self._wire.all([("HGET", key, "fence") for key in keys]) if keys else []
        return [fence for fence in fences if fence is not None and fence.isdigit()]

    def set_back_by(self) -> float:
        """Seconds by which the server's clock was set back, accurate to a few seconds: the last renewal of any lease
        stored which time the clock had reached."""
        (time, watermark) = self._wire.all([TIME, ("HGET", self._keys.control("fences"), "mark")])
        return set_back_by(count_of(watermark), to_ms(time))

    def held(self) -> list[str]:
        """The names of all leases that are held, sorted. StoreRefused if one never expires: no launch wrote that."""
        lease_names = sorted(map(id_text, self._wire.command("SMEMBERS", self._keys.control("leases"))))
        keys = [self._keys.control(f"lease:{each}") for each in lease_names]
        lasting = self._wire.all([("PTTL", key) for key in keys])
        if endless := [key for key, ms in zip(keys, lasting, strict=True) if ms == -1]:
            raise StoreRefused("lease that never ends", endless[0], "another program wrote it: delete this key")
        return [lease_name for lease_name, ms in zip(lease_names, lasting, strict=True) if ms != -2]

    def renew(self, held: Claim, entry: str) -> bool | None:
        """Renew the lease, and update the launch's entry in the ledger. Returns False if another launch holds the lease
        or the lease was broken; None if the store was emptied."""
        control = self._keys.control
        keys = [control(f"lease:{held.lease_name}"), control("fences"), control("seen"), control("ledger")]
        args = [held.lease_name, held.role, held.fence, int(TTL * 1000), held.launch, held.description, entry]
        renewed, *watermarks = self._wire.call("renew", keys, args)
        before, watermark = map(int, watermarks)
        known = self._wire.watermarks
        seen = known.seen or int(held.fence)
        self.rollback = (seen, before) if before < seen else None  # GUARD a renewal that finds less than was seen
        self._wire.watermarks = Watermarks(watermark, max(known.greatest, seen, watermark))
        return None if renewed < 0 else bool(renewed)

    def extend_serving_markers(self, queues: Iterable[str]) -> None:
        """Let the keys that mark ``queues`` as being served exist for another TTL, unless they have expired. Producers
        that start launches on demand look for them."""
        self._wire.all([("PEXPIRE", self._keys.queue(queue, "presence"), int(TTL * 1000)) for queue in queues])

    def release(self, held: Claim, entry: str) -> bool:
        """Release the lease, and complete the ledger's entry. Returns False if another launch held the lease."""
        names = (f"lease:{held.lease_name}", f"baton:{held.group}", "fences", "seen", "ledger", "totals")
        keys = [self._keys.control(name) for name in names]
        watermark, released = self._wire.call(
            "release", keys, [held.lease_name, held.role, held.fence, held.launch, entry]
        )
        self._reach(int(watermark))
        return bool(released)

    def _reach(self, watermark: int) -> None:
        self._wire.watermarks = Watermarks(*(max(known, watermark) for known in self._wire.watermarks))

    def break_(self, lease_name: str, fence: str) -> bool:
        """Take the lease away from the holder with ``fence``. Returns False if the holder has lost it already."""
        control = self._keys.control
        demand_operator(self._wire, self._keys, control("fences"))  # GUARD rights to break
        group = lease_name.rpartition(":")[0]
        keys = [control(f"lease:{lease_name}"), control(f"baton:{group}"), control("fences"), control("answered")]
        broken = bool(self._wire.call("break", keys, [lease_name, fence]))
        if broken:
            note(self._wire, self._keys, "break", "", [lease_name])
        return broken

    def learned(
        self, group: str, handlers: Iterable[str], aliases: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, Histogram]:
        """The durations of ``handlers`` in earlier launches of the group, by name. Also sets `paused_handlers`.
        ``aliases``: the handler's own name for each alias."""
        names, learned = list(handlers), dict[str, Histogram]()
        if not names:
            return learned
        keys = [self._keys.control(f"{generation}:{group}") for generation in GENERATIONS]
        keys.append(self._keys.control("paused_handlers"))
        *durations, since = self._wire.all([("HMGET", key, *names) for key in keys])
        paused = (name for name, at in zip(names, since, strict=True) if at is not None)
        self.paused_handlers = frozenset(aliases.get(name, name) for name in paused)  # GUARD handlers that are paused
        for values in durations:
            for name, value in zip(names, values, strict=True):
                if found := read_histogram(value):
                    learned.setdefault(name, Histogram()).include(found)
        return learned

    def remembered(self, group: str) -> dict[str, Histogram]:
        """The durations of all handlers in earlier launches of the group, by name."""
        found: dict[str, Histogram] = {}
        for fields in self._wire.all([("HGETALL", self._keys.control(f"{each}:{group}")) for each in GENERATIONS]):
            for name, text in zip(fields[::2], fields[1::2], strict=True):
                if name and (histogram := read_histogram(text)):
                    found.setdefault(id_text(name), Histogram()).include(histogram)
        return found

    def learn(self, group: str, measured: Mapping[str, Histogram]) -> None:
        """Store the durations that a launch of the group has measured."""
        if measured:
            control = self._keys.control
            keys = [*(control(f"{generation}:{group}") for generation in GENERATIONS), control("histograms")]
            args: list[str | int] = [GENERATION, LAST, sum(each.count for each in measured.values())]
            for name, histogram in measured.items():
                args += (name, write_histogram(histogram))
            self._wire.call("learn", keys, args)
