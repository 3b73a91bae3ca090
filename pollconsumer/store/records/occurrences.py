"""Occurrences of recurrences as messages: their ids, contents and results.

An id is the recurrence's name, ``@`` and the instant, so an instant is enqueued only once. A name may have an ``@``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core import json_values
from pollconsumer.core.errors import BadData
from pollconsumer.core.messages.message import ENCODED, check_new_headers, created_header
from pollconsumer.core.notation.instants import datetime_of, epoch_ms, iso_of
from pollconsumer.store.records import rows

if TYPE_CHECKING:
    from pollconsumer.core.recurrence import Recurrence

_SECOND = 1000


class Occurrence(NamedTuple):
    """An occurrence, read from a message's id. ``instant``: when it was due, in epoch ms."""

    recurrence: bytes
    instant: int

    def completed(self, ended: int) -> bytes:
        """The occurrence as an argument of `step.lua`. ``ended``: when it was completed, in epoch ms."""
        return rows.pack6(self.instant) + rows.pack6(ended) + self.recurrence


class PreviousOccurrence(NamedTuple):
    """The last completed occurrence of a recurrence: its instant, when it was completed, and its result."""

    instant: datetime
    completed: datetime
    result: Any


def id_of(name: str, instant: int) -> str:
    """The id of the occurrence of the recurrence ``name`` at ``instant``, in epoch ms."""
    return f"{name}@{iso_of(datetime_of(instant), 'milliseconds' if instant % _SECOND else 'seconds')}"


def occurrence_of(message_id: bytes) -> Occurrence | None:
    """The occurrence with this id. None if the message is no occurrence."""
    name, _, instant = message_id.rpartition(b"@")
    if not name or not instant.endswith(b"Z"):
        return None
    try:
        moment = datetime.fromisoformat(instant.decode())
    except ValueError:
        return None
    return Occurrence(name, epoch_ms(moment)) if moment.year >= 1970 else None


def read_previous(stored: bytes | None) -> PreviousOccurrence | None:
    """The last completed occurrence, from its stored text. None if that is missing or corrupt."""
    if stored is None or len(stored) < 12:
        return None
    instant, completed = (datetime_of(int.from_bytes(part, "big")) for part in (stored[:6], stored[6:12]))
    try:
        return PreviousOccurrence(instant, completed, json_values.parse(stored[12:]) if stored[12:] else None)
    except ValueError:
        return None


def record_of(recurrence: Recurrence, instant: int) -> bytes:
    payload = recurrence.payload
    if recurrence.occurrence_wanted:
        payload = payload | {"occurrence": datetime_of(instant).isoformat()}
    encoded = json.dumps(payload, ensure_ascii=False).encode()
    message = recurrence.message(encoded)._replace(headers=_headers_of(recurrence) or None)
    return rows.new_record(message._replace(encoded=ENCODED in recurrence.payload))


def _headers_of(recurrence: Recurrence) -> Mapping[str, str]:
    """The headers of a recurrence's occurrences. ``created_by`` is added if it is valid there, and not too long."""
    if recurrence.created_by is not None:
        with suppress(BadData):
            return check_new_headers(created_header(recurrence.created_by) | recurrence.headers)
    return recurrence.headers
