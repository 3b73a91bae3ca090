"""The keyspace: for each key, the word that code and scripts use, the stored suffix, its type and its content.

Suffixes are short, since every call sends them. All keys of a queue are in one slot of a cluster, and so are those of a
namespace, since a script may touch the keys of one slot only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Key(NamedTuple):
    """A kind of key: ``{namespace:queue}:suffix``."""

    suffix: str
    type: str
    content: str


QUEUE_KEYS = {
    "records": Key("b", "hash", "id → handler, payload, options, instant of its enqueueing; written once"),
    "rows": Key(
        "m", "hash", "id → ending, attempts, fence, instants; absent until first scheduled, reserved or changed"
    ),
    "ready": Key("r", "list", "ids of priority 0, next first"),
    "ready_by_priority": Key("z", "zset", "ids of other priorities by aged rank"),
    "schedule": Key("s", "zset", "ids by due time, in microseconds"),
    "in_flight": Key("f", "zset", "reserved ids by the hard end of their reservation"),
    "completed": Key("d", "list", "ids of completed messages, oldest first"),
    "cancelled": Key("dx", "list", "ids of cancelled messages, oldest first"),
    "expired": Key("de", "list", "ids of expired messages, oldest first"),
    "dead_letters": Key("x", "zset", "ids by time of death"),
    "errors": Key("e", "hash", "id → error of its last failed attempt, or why it was parked or deferred since"),
    "unique_keys": Key(
        "u",
        "hash",
        "unique key, mostly after its handler and a zero → id that holds it, and when that lapses",
    ),
    "counters": Key(
        "c",
        "hash",
        "duplicates in ready, ticks, numbers of outbox entries, batches that have not ended, whether any id was "
        "chosen by a user",
    ),
    "announced": Key("t", "hash", "name of a lease → fence of its newest holder here, 0 once that has died"),
    "ready_marker": Key("k", "list", "one element while consumers are to wake"),
    "schedule_marker": Key("ks", "list", "one element while the mover is to wake"),
    "parked": Key("p", "set", "ids whose handler is unknown here, or paused"),
    "paused": Key("q", "string", "since when nothing is handed out, and until when, if that ends by itself"),
    "places_taken": Key("g", "hash", "concurrency key → messages in flight with it"),
    "waiting_for_place": Key(
        "w", "zset", "messages in line, by concurrency key and rank, or for their order key, by byte 1 and the key"
    ),
    "order_heads": Key("gh", "hash", "order key → id of the message that the others with it wait for"),
    "handed_out": Key("h", "hash", "sixtieth of the quota's period → messages handed out"),
    "rates": Key("j", "hash", "rate and rate key → instants of messages handed out, and booked for waiting ones"),
    "outbox": Key("o", "list", "follow-ups to other queues, and ends that are told, not sent yet"),
    "quarantine": Key("quarantine", "list", "entries of the outbox that cannot be read, the last 1,000, for a person"),
    "told": Key("told", "list", "in a cluster, ends that other queues were told, to be told again, by the next launch"),
    "results": Key("v", "hash", "id → result; id and a line feed → in how many runs it is left"),
    "result_runs": Key(
        "vr", "zset", "instant of settlement, and ids, by the time at which their results are forgotten"
    ),
    "result_ends": Key("vx", "zset", "of an earlier version: ids by the time at which their result is forgotten"),
    "checkpoints": Key(
        "y",
        "hash",
        "id → checkpoint; id and a line feed → number of steps, signal awaited; with a number behind it → step; with 0 "
        "→ signals",
    ),
    "progress": Key("yp", "hash", "id → instant, and how far its handler has come"),
    "logs": Key("yl", "hash", "id → a line for each attempt: when it was reserved, its number, what it has logged"),
    "stops": Key("kz", "hash", "id → instant at which a person asked a message in flight to stop"),
    "stop_marker": Key("kx", "list", "by fence, which follows: one element while a launch is to look for these"),
    "recurrences": Key("n", "hash", "name → definition"),
    "next_instants": Key("nz", "zset", "names by next instant"),
    "recurrence_counters": Key(
        "nc",
        "hash",
        "name:what → counts, last id, instants of the last ones, the last one completed, pause, what is due by a "
        "definition that was replaced",
    ),
    "served": Key("served", "string", "present while a consumer can be expected"),
    "presence": Key("presence", "string", "with on_demand: present while a launch serves the queue"),
    "recurrence_owners": Key("recurrence_owners", "hash", "name → groups that define it"),
    "recurrence_owners_seen": Key("recurrence_owners_seen", "hash", "group → when it last launched"),
    "recurrences_of_owners": Key(
        "recurrences_of_owners", "hash", "group → names that it defined when it last launched"
    ),
    "recurrences_ended": Key(
        "recurrences_ended", "zset", "names put at run time that yield nothing any more, by their end"
    ),
    "recurrences_replaced": Key("recurrences_replaced", "hash", "name and definition → next instant it had"),
    "recurrences_unreadable": Key("recurrences_unreadable", "zset", "names of unreadable definitions by instant"),
    "id_memory": Key("id_memory", "set", "forgotten ids, younger generation"),
    "id_memory_before": Key("id_memory_before", "set", "forgotten ids, older generation"),
    "id_digests": Key("id_digests", "hash", "forgotten id that was chosen → digest, younger generation"),
    "id_digests_before": Key("id_digests_before", "hash", "forgotten id that was chosen → digest, older generation"),
    "received": Key("received", "hash", "sending queue → last outbox entry received"),
    "last_answer": Key(
        "last_answer",
        "string",
        "by producer and page, which follow: number of its last call, and what that was answered",
    ),
    "uncounted": Key(
        "uncounted",
        "list",
        "left by versions before: start, end and row of completed messages that no total counts yet",
    ),
    "totals": Key("totals", "hash", "what was settled → how often: see store/reading/ledger.py"),
    "batches": Key(
        "batches",
        "hash",
        "batch → flags, total, how many members have ended and how, instants, next number of a member",
    ),
    "batch_members": Key("batch_members", "hash", "batch and number of a chunk → two bits for each of 512 members"),
    "batch_callbacks": Key("batch_callbacks", "hash", "batch and callback → its message, as an entry of the outbox"),
    "batch_instants": Key("batch_instants", "zset", "batches by when they are abandoned, expire or are forgotten"),
    "answered": Key(
        "act",
        "list",
        "by number of a call, which follows: what its act was answered, for a minute, should the reply have been lost",
    ),
    "successor_waits": Key(
        "sw",
        "string",
        "by group, whose name follows: while a launch waits for its lease, the newest fence that it waits for",
    ),
}

FINISHED = ("completed", "cancelled", "expired")
"""Words of the lists of ended messages, which are deleted after a time."""

CLOSED = "closed:"
"""Prefix of a key's suffix while the store is closed: see ``moving/store_closer.py``."""

CONTROL_SUFFIXES = {"queues_marker": "kq", "successor_waits": "sw", "answered": "act"}


MOST_REMEMBERED = 10_000
"""Maximum number of pairs of script and queue whose key names are kept in memory: a program may have a queue for each
of its users. Other names are built at each call."""


class KeyedScript(Protocol):
    """A script, as far as `Keys` uses it: the suffixes of its keys, in their order."""

    @property
    def suffixes(self) -> Sequence[str]: ...


class Keys:
    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._names_by_script: dict[tuple[KeyedScript, str], list[str]] = {}

    def queue(self, queue: str, name: str) -> str:
        return f"{{{self.namespace}:{queue}}}:{QUEUE_KEYS[name].suffix}"

    def names_for(self, script: KeyedScript, queue: str) -> list[str]:
        """The names of the script's keys in ``queue``, in a new list."""
        keys = self._names_by_script.get((script, queue))
        if keys is None:
            prefix = f"{{{self.namespace}:{queue}}}:"
            if len(self._names_by_script) >= MOST_REMEMBERED:
                self._names_by_script.clear()
            keys = self._names_by_script[script, queue] = [prefix + each for each in script.suffixes]
        return keys.copy()

    def queue_of(self, key: str) -> str | None:
        """The queue to which ``key`` belongs. None for a key of the namespace itself, or of another namespace."""
        tag = key[1 : key.find("}")]
        return tag.removeprefix(f"{self.namespace}:") if tag.startswith(f"{self.namespace}:") else None

    def control(self, name: str) -> str:
        """The name of a key of the namespace itself, such as those of leases, ledger and durations."""
        return f"{{{self.namespace}}}:{CONTROL_SUFFIXES.get(name, name)}"
