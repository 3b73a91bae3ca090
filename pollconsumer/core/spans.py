"""Durations as arguments of calls."""

from __future__ import annotations

from pollconsumer.core.errors import BadData
from pollconsumer.core.notation.timespan import Span, parse_duration


def seconds_in(name: str, span: Span) -> float:
    """`parse_duration` for the argument ``name`` of a call: BadData for an invalid value, TypeError for another
    type."""
    try:
        return parse_duration(span)
    except TypeError as error:
        raise TypeError(f"{name} {error}") from None
    except ValueError as error:
        raise BadData(name, span, str(error)) from None
