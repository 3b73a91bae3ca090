"""A launch's work for queues other than handling: take over, recover, repair, delete old messages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pollconsumer.core.errors import StoreRefused
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import QUEUE_KEYS, Keys
from pollconsumer.store.queues.producer import ID_MEMORY_MS, MOST_REMEMBERED, Producer
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Claim, DeadLetter, dead_letters_of
from pollconsumer.store.records.steps import Kept, Retention
from pollconsumer.store.rights import LAUNCH
from pollconsumer.store.scripts import Script

RECOVER_PAGE = 200
IDS_PAGE = 100
CONVERT_PAGE = 1000
"""Number of due times in an earlier version's form that one script converts."""
REPAIR_PAGE = 50
REPAIR_PAGES = 40
MOST_COUNTED = 1000
MOST_OFFERED = 2000
"""Maximum number of parked messages that a beginning launch makes due. Others come due within a minute anyway."""
MOST_LINES = 100
"""Number of concurrency keys that one call examines."""
TRIM_PAGE = 400
"""Maximum number of ended messages of each kind that one call deletes. A consumer completes fewer between two calls."""
KEEP_FINISHED = 10_000
KEEP_FINISHED_MS = 24 * 3600 * 1000
DEFAULT = Retention()
_NEXT = {b"scheduled": "cancel", b"ready": "cancel", b"reserved": "stop"}
"""By the state in which the last script found a message, the script to call next."""
_OF_RECURRENCES = ("next_instants", "recurrences_unreadable")


class Maintenance:
    def __init__(self, producer: Producer) -> None:
        """``producer`` registers queues."""
        self._wire, self._keys, self._register = producer.wire, producer.keys, producer.register

    def announce(
        self,
        claim: Claim,
        queue: str,
        *,
        served_for: float = 0.0,
        on_dead_letter: Callable[[DeadLetter], object] = lambda _: None,
        handlers: Collection[str] = (),
    ) -> int:
        """Let ``queue`` refuse every earlier holder of the lease, and recover their orphans. Returns the number of
        orphans. Quarantined recurrences are tried again.

        ``served_for``: seconds for which the queue counts as served, until the next launch can be expected.
        ``handlers``: the launch's handlers that are not paused; their parked messages become due. StoreRefused if a key
        of the queue has the wrong type."""
        there = self._check_types(queue)  # GUARD types of a queue's keys
        self._register(queue, LAUNCH)  # GUARD rights of a launch in a queue
        call = f"{self._keys.queue(queue, 'successor_waits')}:{claim.group}"
        keys = [
            self._keys.queue(queue, "announced"),
            call,
            *(self._keys.queue(queue, name) for name in ("served", "schedule", *_OF_RECURRENCES)),
        ]
        args = [claim.lease_name, claim.fence, int(served_for * 1000), CONVERT_PAGE]
        while self._wire.call("announce", keys, args) == CONVERT_PAGE:
            pass
        if "parked" in there and handlers:
            offer_parked(self._wire, self._keys, queue, handlers, MOST_OFFERED)
        return self.recover(queue, on_dead_letter=on_dead_letter)

    def recover(
        self,
        queue: str,
        live_fences: Sequence[bytes] | None = None,
        *,
        on_dead_letter: Callable[[DeadLetter], object] = lambda _: None,
        known: Mapping[bytes, str] = MappingProxyType({}),
    ) -> int:
        """Requeue orphans, the messages that dead launches had reserved. Returns their number. ``on_dead_letter`` is
        called for each that becomes a dead letter. ``known``: by message id, why its process died, where that is known.

        With ``live_fences``, the fences of all current leases, it also recovers reservations under other fences whose
        hard end has passed. Their launch ran on a machine that vanished, and no launch of its group followed."""
        recovered = looked_at = 0
        about = [len(known), *(part for each in known.items() for part in each)]
        args = [int(live_fences is not None), *about, *(live_fences or ())]
        while True:  # in reverse order, since each is pushed to the head
            orphans, looked, dead = self._wire.run("recover", self._keys, queue, [looked_at, RECOVER_PAGE, *args])
            recovered += len(orphans)
            for dead_letter in dead_letters_of(queue, dead):
                on_dead_letter(dead_letter)
            looked_at += looked - len(orphans)
            if looked < RECOVER_PAGE:
                return recovered

    def repair(self, queue: str) -> int:
        """Put messages that are accepted and in no list back into one. Returns their number.

        If the lists together are as long as there are records, a call checks one page of records, else up to
        REPAIR_PAGES. The next call continues with the page after them."""
        placed = 0
        for _ in range(REPAIR_PAGES):
            found, suspect, complete = self._wire.run("repair", self._keys, queue, [REPAIR_PAGE])
            placed += found
            if not suspect or complete:
                break
        return placed

    def expire(self, queue: str, pages: int = 1) -> int:
        """Expire messages of a queue that no launch serves. A call checks ``pages`` pages of its records; the next call
        goes on after them. Returns the number of expired messages. PermissionDenied, before any write, without a
        launch's rights."""
        self._register(queue, LAUNCH)  # GUARD rights to what another serves
        ended = 0
        for _ in range(pages):
            found, complete = self._wire.run("expire", self._keys, queue, [REPAIR_PAGE])
            ended += found
            if complete:
                break
        return ended

    def offer_places(self, queue: str) -> int:
        """Recount messages in flight by concurrency key; let others begin, of MOST_LINES keys. Returns how many may."""
        return int(self._wire.run("offer", self._keys, queue, [MOST_COUNTED, MOST_LINES]))

    def book_anew(self, queue: str, reached_ms: int) -> None:
        """After the clock was set back from ``reached_ms``: make messages due that wait for their rate until later."""
        if not self._wire.command("EXISTS", self._keys.queue(queue, "rates")):
            return
        script, left = self._wire.scripts["change"], 0
        keys, schedule = self._keys.names_for(script.keys, queue)[:-1], self._keys.queue(queue, "schedule")
        while True:
            beyond = (f"({reached_ms * 1000}", "+inf", "BYSCORE", "LIMIT", left, RECOVER_PAGE)
            ids = self._wire.command("ZRANGE", schedule, *beyond)
            found = self._wire.command("HMGET", self._keys.queue(queue, "rows"), *ids) if ids else []
            booked = [each for each, row in zip(ids, found, strict=True) if row and row[rows.FLAGS] & rows.BOOKED]
            if booked:
                self._wire.all([self._wire.script(script, keys, [each, "+0", "", ""]) for each in booked])
            left += len(ids) - len(booked)
            if len(ids) < RECOVER_PAGE:
                return

    def trim(self, queue: str, keeping: Retention = DEFAULT) -> int:
        """Delete a page of ended messages that ``keeping`` does not keep, and remember their ids. Also delete lapsed
        results and batches. Returns the number of messages deleted."""
        return int(self._wire.call(*self.trimming(queue, keeping)))

    def trimming(self, queue: str, keeping: Retention) -> tuple[Script, list[str], list[Any]]:
        """The script that `trim` runs, its keys and its arguments."""
        script = self._wire.scripts["trim"]
        finished = keeping.finished or Kept(KEEP_FINISHED, KEEP_FINISHED_MS)
        limits = ["" if limit is None else limit for limit in (*finished, *keeping.dead)]
        return script, self._keys.names_for(script.keys, queue), [TRIM_PAGE, ID_MEMORY_MS, MOST_REMEMBERED, *limits]

    def rename(self, aliases: Mapping[str, str]) -> None:
        """Let totals of aliases, also earlier totals, count for their handlers. ``aliases``: own name by alias."""
        totals, names = self._keys.control("totals"), [name.encode() for name in aliases.values()]
        fields = [f"renamed\n{alias}" for alias in aliases]
        if self._wire.command("HMGET", totals, *fields) != names:  # a full server refuses to store them
            self._wire.command("HSET", totals, *(text for pair in zip(fields, names, strict=True) for text in pair))

    def owns_recurrences(self, owner: str) -> bool:
        """Whether an earlier launch of the group ``owner`` has defined recurrences."""
        return bool(self._wire.command("SISMEMBER", self._keys.control("recurring"), owner))

    def own_recurrences(self, owner: str, queues: Iterable[str]) -> None:
        """Record that launches of the group ``owner`` define recurrences; called before the first one is defined.
        Registers ``queues``, so that movers know them."""
        for queue in queues:
            self._register(queue)
        if not self.owns_recurrences(owner):  # a full server refuses the command
            self._wire.command("SADD", self._keys.control("recurring"), owner)

    def disown_recurrences(self, owner: str) -> None:
        """Record that the group ``owner`` defines no recurrences any more. Called after they were removed."""
        self._wire.command("SREM", self._keys.control("recurring"), owner)

    def _check_types(self, queue: str) -> set[str]:
        """The words of the keys that ``queue`` has. StoreRefused if one has the wrong type."""
        kinds = {name: (self._keys.queue(queue, name), key.type) for name, key in QUEUE_KEYS.items()}
        types = [each.decode() for each in self._wire.all([("TYPE", key) for key, _ in kinds.values()])]
        for (key, kind), found in zip(kinds.values(), types, strict=True):
            if found not in (kind, "none"):
                problem = f"{key} is a {found}, not a {kind}"
                raise StoreRefused("key of a wrong type", problem, "choose another namespace")
        return {name for name, found in zip(kinds, types, strict=True) if found != "none"}


def offer_parked(wire: Wire, keys: Keys, queue: str, names: Collection[str], most: int = sys.maxsize) -> None:
    """Make the parked messages of the handlers with these ``names`` due now, except those that were rescheduled since.
    It looks at ``most`` parked messages at most."""
    script, rows_key = wire.scripts["change"], keys.queue(queue, "rows")
    script_keys = keys.names_for(script.keys, queue)[:-1]
    ids = wire.command("SRANDMEMBER", keys.queue(queue, "parked"), most)
    for first in range(0, len(ids), IDS_PAGE):
        page, commands = ids[first : first + IDS_PAGE], []
        for each, row in zip(page, wire.command("HMGET", rows_key, *page), strict=True):
            handler, *_, times = rows.read_row(row or b"")
            # A message that has got another due time waits for it: then next_attempt_at equals due_at, or is None.
            if handler in names and times.next_attempt_at not in (None, times.due_at):  # GUARD another due time
                commands.append(wire.script(script, script_keys, [each, "+0", "", ""]))
        if commands:
            wire.all(commands)


def stop_message(wire: Wire, keys: Keys, queue: str, message_id: bytes) -> Any:
    """Cancel a message that is not reserved, or else ask its launch to stop it. Returns b"" if that is done; the state
    of a message that has ended; b"newer" if a newer version wrote it; b"none" or None if there is no such message."""
    script, name = wire.scripts["stop"], "stop"
    while True:
        if name == "stop":
            fence = rows.fence(wire.command("HGET", keys.queue(queue, "rows"), message_id) or b"")
            its_keys = keys.names_for(script.keys, queue)
            its_keys[script.keys.index("stop_marker")] += f":{fence}"
            state = wire.call(script, its_keys, [message_id, fence])
        else:
            [state] = wire.run("cancel", keys, queue, [message_id])
        if state not in _NEXT:
            return state
        name = _NEXT[state]
