"""Kinds of values on a launch's command line. Each reads a value from text, or refuses the text by a rule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pollconsumer.core.notation.timespan import YEAR, format_duration, parse_duration
from pollconsumer.interface.settings.values import NAME, NAME_RULE, check_cron, parse_memory


class Text(NamedTuple):
    """``read`` makes a value of text, or raises a ValueError with the rule that the text breaks."""

    name: str
    read: Callable[[str], Any]


MOST = 10**9
"""The largest number of an option that names no other."""


class Whole(NamedTuple):
    """A whole number from ``least`` to ``most``."""

    least: int
    most: int = MOST

    def read(self, text: str) -> int:
        number = int(text)
        if not self.least <= number <= self.most:
            raise ValueError
        return number


class WordKind(NamedTuple):
    """One of the words of an enum, as its member."""

    words: type[StrEnum]

    def read(self, text: str) -> StrEnum:
        return self.words(text)


class PlainKind(NamedTuple):
    """Any text, or any number."""

    read: type[str] | type[float]


Kind = Text | Whole | WordKind | PlainKind


def duration(*, positive: bool = False, most: float = YEAR) -> Text:
    """Seconds, as a float; above 0 if ``positive``, and at most ``most``."""
    rule = "must be > 0" if positive else "must be 0 or more"

    def read(text: str) -> float:
        if text.lstrip().startswith("-"):
            raise ValueError(rule)
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise ValueError(f"unknown unit: {error}" if str(error).startswith("units") else str(error)) from None
        if positive and seconds == 0:
            raise ValueError(rule)
        if seconds > most:
            raise ValueError(f"must be at most {format_duration(most)}")
        return seconds

    return Text("duration", read)


def _past(text: str) -> Callable[[int], int]:
    """What makes an instant in epoch ms of the present one: a time, or a duration ago. A time without offset is of this
    machine's zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        try:
            at = round(moment.astimezone().timestamp() * 1000)
        except (OverflowError, ValueError):
            raise ValueError("must be between the years 1970 and 9999") from None
        return lambda _: at
    try:
        seconds = parse_duration(text)
    except ValueError:
        raise ValueError("write a time, as in 2026-11-28T03:00, or how long ago, as in 26h") from None
    return lambda now: now - round(seconds * 1000)


def _cron(text: str) -> str:
    check_cron(text)
    return text


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(NAME_RULE if text else f"empty name, {NAME_RULE}")
    return text


CRON = Text("cron", _cron)
NAME_TEXT = Text("name", _name)
PAST = Text("time", _past)
BYTES = Text("size", parse_memory)
