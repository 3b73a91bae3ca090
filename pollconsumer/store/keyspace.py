"""The keyspace: for each key, the word that code and scripts use, the stored suffix, its type and its content.

Suffixes are short, since every call sends them. A script may touch the keys of one slot of a cluster only. So all keys
of a queue are in one slot, and so are the keys that belong to the namespace itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Key(NamedTuple):
    """A kind of key: ``{namespace:queue}:suffix``."""

    suffix: str
    type: str
    content: str


QUEUE_KEYS = {
    "records": Key("b", "hash", "id → the record: handler, payload, options, instant of enqueueing; written once"),
    "rows": Key(
        "m",
        "hash",
        "id → the row: ending, attempts, fence, instants; absent until the message is first scheduled, reserved or "
        "changed",
    ),
    "ready": Key("r", "list", "ids of priority 0, next first"),
    "ready_by_priority": Key(
        "z",
        "zset",
        "ids of other priorities, by rank: the instant of becoming ready, plus an hour for each level of priority",
    ),
    "schedule": Key("s", "zset", "ids by due time, in microseconds"),
    "in_flight": Key(
        "f", "zset", "ids of reserved messages, by the instant at which the reservation ends at the latest"
    ),
    "completed": Key("d", "list", "ids of completed messages, oldest first"),
    "cancelled": Key("dx", "list", "ids of cancelled messages, oldest first"),
    "expired": Key("de", "list", "ids of expired messages, oldest first"),
    "dead_letters": Key("x", "zset", "ids by time of death"),
    "errors": Key(
        "e", "hash", "id → error of the message's last failed attempt, or why the message was parked or deferred since"
    ),
    "unique_keys": Key(
        "u",
        "hash",
        "handler, a zero and unique key → id of the message that holds the key, and when the hold lapses; a key for "
        "all handlers stands alone",
    ),
    "counters": Key(
        "c",
        "hash",
        "duplicates in ready, ticks, numbers of outbox entries, batches that have not ended, whether any id was "
        "chosen by a user",
    ),
    "announced": Key(
        "t", "hash", "name of a lease → fence of its newest holder in this queue; 0 once that holder has died"
    ),
    "ready_marker": Key("k", "list", "one element while consumers are to wake"),
    "schedule_marker": Key("ks", "list", "one element while the mover is to wake"),
    "parked": Key("p", "set", "ids of messages whose handler is paused, or unknown to the launches of this queue"),
    "paused": Key(
        "q", "string", "present while the queue is paused: since when, and until when if the pause ends by itself"
    ),
    "places_taken": Key("g", "hash", "concurrency key → messages in flight with it"),
    "waiting_for_place": Key("w", "zset", "messages in line: by concurrency key and rank, or by byte 1 and order key"),
    "order_heads": Key("gh", "hash", "order key → id of the head, for which the other messages with the key wait"),
    "handed_out": Key("h", "hash", "sixtieth of the quota's period → number of messages handed out in it"),
    "rates": Key(
        "j",
        "hash",
        "rate and rate key → instants at which messages were handed out, and instants booked for waiting messages",
    ),
    "outbox": Key("o", "list", "follow-ups and reports of ends that are not sent to their queues yet"),
    "quarantine": Key(
        "quarantine", "list", "the last 1,000 entries of the outbox that cannot be read, for a person to look at"
    ),
    "told": Key(
        "told",
        "list",
        "in a cluster: reports of ends that were sent to other queues, which the next launch sends again",
    ),
    "results": Key("v", "hash", "id → result; id and a line feed → number of runs in `result_runs` that have the id"),
    "result_runs": Key(
        "vr",
        "zset",
        "runs: an instant of settlement and the ids settled then, by the time at which their results are forgotten",
    ),
    "result_ends": Key(
        "vx", "zset", "written by an earlier version: ids by the time at which their result is forgotten"
    ),
    "checkpoints": Key(
        "y",
        "hash",
        "id → checkpoint; id and a line feed → number of steps, and signal awaited; id, line feed and number → step; "
        "id, line feed and 0 → signals sent",
    ),
    "progress": Key("yp", "hash", "id → how far the handler has come, and when it reported that"),
    "logs": Key(
        "yl",
        "hash",
        "id → a line for each attempt: when the message was reserved, the attempt's number, what it logged",
    ),
    "stops": Key("kz", "hash", "id → instant at which a person asked a message in flight to stop"),
    "stop_marker": Key(
        "kx",
        "list",
        "one for each fence, which follows the suffix: has an element while the launch with this fence is to read "
        "`stops`",
    ),
    "recurrences": Key("n", "hash", "name → definition"),
    "next_instants": Key("nz", "zset", "names by next instant"),
    "recurrence_counters": Key(
        "nc",
        "hash",
        "name:what → counts; id and instants of the last occurrences; the last one completed; a pause; what is due "
        "by a replaced definition",
    ),
    "served": Key("served", "string", "present while launches of a consumer can be expected to come"),
    "presence": Key("presence", "string", "with on_demand: present while a launch serves the queue"),
    "recurrence_owners": Key("recurrence_owners", "hash", "name → groups that define it"),
    "recurrence_owners_seen": Key("recurrence_owners_seen", "hash", "group → when it last launched"),
    "recurrences_of_owners": Key(
        "recurrences_of_owners", "hash", "group → names that it defined when it last launched"
    ),
    "recurrences_ended": Key(
        "recurrences_ended",
        "zset",
        "names of recurrences that were put at run time and have ended, by the instant of their end",
    ),
    "recurrences_replaced": Key(
        "recurrences_replaced", "hash", "name and replaced definition → next instant that this definition had"
    ),
    "recurrences_unreadable": Key(
        "recurrences_unreadable", "zset", "names of recurrences whose definition cannot be read, by next instant"
    ),
    "id_memory": Key("id_memory", "set", "ids of forgotten messages, newer set"),
    "id_memory_before": Key("id_memory_before", "set", "ids of forgotten messages, older set"),
    "id_digests": Key("id_digests", "hash", "id of a forgotten message, chosen by the user → digest, newer set"),
    "id_digests_before": Key(
        "id_digests_before", "hash", "id of a forgotten message, chosen by the user → digest, older set"
    ),
    "received": Key("received", "hash", "queue that sent → number of its last outbox entry that was received"),
    "last_answer": Key(
        "last_answer",
        "string",
        "one for each producer and page, which follow the suffix: number of the producer's last call, and its answer",
    ),
    "uncounted": Key(
        "uncounted",
        "list",
        "written by earlier versions: start, end and row of completed messages that no total counts yet",
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
        "one for each call, whose number follows the suffix: its answer, for a minute, in case the reply was lost",
    ),
    "successor_waits": Key(
        "sw",
        "string",
        "one for each group, whose name follows the suffix: while a launch waits for the lease, the newest fence that "
        "it waits for",
    ),
}

FINISHED = ("completed", "cancelled", "expired")
"""Words of the lists of ended messages that are deleted after a time."""

CLOSED = "closed:"
"""Prefix of a key's suffix while the store is closed: see ``moving/store_closer.py``."""

TRIAL = "trial@"
"""What the namespace of ``check --compat`` has after ours and a colon. No queue's name has an @."""

CONTROL_SUFFIXES = {"queues_marker": "kq", "successor_waits": "sw", "answered": "act"}


class Keys:
    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def queue(self, queue: str, name: str) -> str:
        return f"{{{self.namespace}:{queue}}}:{QUEUE_KEYS[name].suffix}"

    def names_for(self, words: Sequence[str], queue: str) -> list[str]:
        """The names of the keys in ``queue`` with these ``words``, such as those of a script."""
        prefix = f"{{{self.namespace}:{queue}}}:"
        return [prefix + QUEUE_KEYS[word].suffix for word in words]

    def queue_of(self, key: str) -> str | None:
        """The queue to which ``key`` belongs. None for a key of the namespace itself, or of another namespace."""
        tag = key[1 : key.find("}")]
        return tag.removeprefix(f"{self.namespace}:") if tag.startswith(f"{self.namespace}:") else None

    def control(self, name: str) -> str:
        """The name of a key of the namespace itself, such as those of leases, ledger and durations."""
        return f"{{{self.namespace}}}:{CONTROL_SUFFIXES.get(name, name)}"
