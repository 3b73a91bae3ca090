"""Reads earlier launches of a group from entries of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pollconsumer.core import json_values

LONGEST = 3600.0
"""Seconds: a longer offset, exit time or wait for the next tick is corrupt, or of no use."""


class Past(NamedTuple):
    """A launch of the past. Instants are in seconds of the server's clock, spans in seconds; both are None where
    unknown. ``offset``: from its tick to its start. ``next_tick``: from its start to the tick after that. ``exit``:
    from its end to that of its process. ``observed``: as it was written, see `Observed`."""

    started: float | None
    ended: float | None
    offset: float | None
    next_tick: float | None
    exit: float | None
    observed: object

    @property
    def gone(self) -> float | None:
        """When the launch's process had ended; None if it is not known to have ended."""
        return None if self.ended is None else self.ended + (self.exit or 0.0)

    def waited_for(self, before: Past) -> bool:
        """Whether the launch ``before`` was, or may have been, alive at this one's tick, so that a launcher that queues
        started this one when ``before`` had ended."""
        if self.started is None or self.offset is None or before.gone is None:
            return True
        return before.gone > self.started - self.offset


def past_launches(entries: Iterable[bytes], group: str, own: str = "") -> list[Past]:
    """The launches of ``group`` among ``entries``, newest first, without the launch ``own``, and without corrupt
    ones."""
    found = []
    for text in entries:
        try:
            entry = json_values.parse(text)
        except ValueError:
            continue
        if not isinstance(entry, dict) or (own and entry.get("launch_id") == own):
            continue
        if str(entry.get("lineage")).rpartition(":")[0] == group:
            found.append(past_launch(entry))
    return found


def past_launch(entry: dict[str, Any]) -> Past:
    return Past(
        _instant(entry.get("started_ms")),
        _instant(entry.get("ended_ms")),
        _span(entry.get("launch_offset_seconds")),
        _span(entry.get("next_tick_seconds")),
        _span(entry.get("exit_seconds")),
        entry.get("observed"),
    )


def _span(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LONGEST else None


def _instant(value: object) -> float | None:
    return value / 1000 if type(value) is int and value.bit_length() < 64 else None
