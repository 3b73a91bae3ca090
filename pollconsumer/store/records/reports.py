"""What handlers leave between attempts: progress, with the command that stores it, checkpoints and steps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

from pollconsumer.core import json_values
from pollconsumer.core.errors import BadData
from pollconsumer.core.messages.message_steps import Progress, Recorded, checked, head_field, signals_field, step_fields
from pollconsumer.core.notation.instants import datetime_of
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Claim

Reports = Mapping[str, Mapping[bytes, Progress]]
"""The last report of each message, by queue and id."""
_INSTANT = 6


def report_commands(wire: Wire, keys: Keys, claim: Claim, reports: Reports) -> list[tuple[Any, ...]]:
    """The commands that store ``reports``. A message that another launch has reserved since, or that is forgotten,
    keeps the progress that it has."""
    script = wire.scripts["progress"]
    head = [claim.lineage, claim.fence, rows.pack6(int(claim.fence))]
    return [
        wire.script(
            script,
            keys.of_script(script, queue),
            [*head, *chain.from_iterable((name, _encoded(each)) for name, each in of_queue.items())],
        )
        for queue, of_queue in reports.items()
    ]


def read_progress(stored: bytes | None) -> Progress | None:
    """The progress in stored text; None if there is none, or if it is corrupt."""
    if stored is None:
        return None
    try:
        done, total, note, *_ = json_values.parse(stored[_INSTANT:])  # a newer version may say more
        return checked(done, total, note)._replace(at=datetime_of(int.from_bytes(stored[:_INSTANT], "big")))
    except (ValueError, TypeError, BadData):
        return None


def read_recorded(wire: Wire, key: str, message_id: bytes) -> tuple[bytes | None, Recorded | None]:
    """The last checkpoint of a message, of which ``key`` has the checkpoints; its steps and signals, None if it has
    none."""
    first = ("HMGET", key, message_id, head_field(message_id), signals_field(message_id))
    state, head, signals = wire.all([first], parting=False)[0]
    fields, entries = step_fields(message_id, head), list[bytes | None]()
    if fields:
        (entries,) = wire.all([("HMGET", key, *fields)], parting=False)
    return state, None if head is None else Recorded.read(head, entries, signals or b"")


def _encoded(progress: Progress) -> str:
    return json.dumps(progress[:3], separators=(",", ":"))
