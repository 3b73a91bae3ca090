"""Values on the command line, each refused as ``VALUE; RULE``, and options that may be given once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import click

from pollconsumer.core.errors import shown
from pollconsumer.core.notation.instants import EPOCH, LAST_MILLISECOND
from pollconsumer.core.notation.timespan import YEAR, format_duration, parse_duration
from pollconsumer.interface.settings.values import NAME, NAME_RULE, check_cron, parse_memory

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType

_FINER_THAN_MICROSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]")
_LONG_YEAR = re.compile(r"\+?\d{5,}-")


class Once(click.Option):
    """An option that may be given only once, instead of silently using the last value."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        self.multiple = True  # only so that the parser keeps every value
        super().add_to_parser(parser, ctx)
        self.multiple = False

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        given = opts.get(self.name or "", ())
        if isinstance(given, list):
            if len(given) > 1:
                raise click.BadParameter("given twice; give it once", ctx=ctx, param=self)
            opts = {**opts, self.name or "": given[0]}
        return super().consume_value(ctx, opts)


class Value(_ParamType):
    """A value that ``read`` makes of text, or refuses by a ValueError with the rule that the text breaks; a default of
    another type is used unchanged."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self.read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(f"{shown(value) or 'empty'}; {error}", param, ctx)


class Duration(Value):
    """Seconds, as a float; above 0 if ``positive``, and at most ``most``."""

    def __init__(self, *, positive: bool = False, most: float = YEAR) -> None:
        super().__init__("duration", self._seconds)
        self.positive, self.most = positive, most

    def _seconds(self, text: str) -> float:
        rule = "must be > 0" if self.positive else "must be 0 or more"
        if text.lstrip().startswith("-"):
            raise ValueError(rule)
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise ValueError(f"unknown unit: {error}" if str(error).startswith("units") else str(error)) from None
        if self.positive and seconds == 0:
            raise ValueError(rule)
        if seconds > self.most:
            raise ValueError(f"must be at most {format_duration(self.most)}")
        return seconds


class Word(click.Choice[str]):
    """One of the words of an enum, as its member."""

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__([member.value for member in kind])
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StrEnum:
        return self.kind(super().convert(value, param, ctx))


def _due_time(text: str) -> int:
    """An ISO 8601 time in epoch milliseconds, rounded up so that no message is early."""
    too_late = "must not be beyond year 9999"
    if _LONG_YEAR.match(text):
        raise ValueError(too_late)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("write ISO 8601 with an offset or Z, as in 2030-01-31T09:00:00Z") from None
    if time.tzinfo is None:
        raise ValueError("needs an offset or Z, as in 2030-01-31T09:00:00Z")
    microseconds = (time - EPOCH) // timedelta(microseconds=1) + bool(_FINER_THAN_MICROSECONDS.search(text))
    milliseconds = -(-microseconds // 1000)
    if milliseconds > LAST_MILLISECOND:
        raise ValueError(too_late)
    return max(1, milliseconds)  # past times are due now, even before Python's first year


def _cron(text: str) -> str:
    check_cron(text)
    return text


def _queue_name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(NAME_RULE if text else f"empty name, {NAME_RULE}")
    return text


DUE_TIME = Value("time", _due_time)
CRON = Value("cron", _cron)
QUEUE_NAME = Value("name", _queue_name)
"""Of a namespace, too."""
MEMORY_SIZE = Value("size", parse_memory)
"""Bytes."""
