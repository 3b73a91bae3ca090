"""Options of commands that are settings, made of the declared fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pollconsumer.core import choices
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.interface.cli.types import (
    CRON,
    MEMORY_SIZE,
    MOST,
    QUEUE_NAME,
    Duration,
    Function,
    Once,
    WordType,
)
from pollconsumer.interface.settings.model import (
    CHECK_CRON,
    CHECK_NAME,
    READ_DURATION,
    READ_MEMORY,
    DeclaredField,
    declared_fields,
)

TYPES: dict[str, click.ParamType[Any]] = {CHECK_CRON: CRON, READ_MEMORY: MEMORY_SIZE, CHECK_NAME: QUEUE_NAME}
"""Function that reads or checks a setting → the type of its values on the command line."""


def settings_of_section(section: str) -> Callable[[Function], Function]:
    """A decorator that gives a command an option for each setting of a section that has a flag. An option that is not
    given is None, or (), and leaves the setting as it is."""

    def declare(function: Function) -> Function:
        for setting in [*declared_fields().section(section).values()][::-1]:
            if setting.flag is not None:
                function = _option_of(setting, setting.flag)(function)
        return function

    return declare


def _option_of(setting: DeclaredField, flag: str) -> Callable[[Function], Function]:
    told = setting.help.replace("`", "") + _default(setting)
    if setting.kind == "bool":
        switches = f"{flag}/--no-{flag.removeprefix('--')}"
        return click.option(switches, setting.key, is_flag=True, default=None, help=told)
    if setting.items is not None:
        told += "  [repeatable]"
        return click.option(flag, setting.key, type=QUEUE_NAME, multiple=True, help=told)
    former = f"--{setting.former.replace('_', '-')}" if setting.former else ""
    metavar = "URL" if setting.key == "store" else None
    kind = _type_of(setting)
    return click.option(flag, setting.key, cls=Once, former=former, type=kind, metavar=metavar, help=told)


def _default(setting: DeclaredField) -> str:
    """The setting's default for the help; empty where it is unset."""
    value = setting.default
    if value in (None, [], False):
        return ""
    if setting.reads == READ_DURATION:
        value = format_duration(value)
    return f"  [default: {value:g}]" if isinstance(value, float) else f"  [default: {value}]"


def _type_of(setting: DeclaredField) -> click.ParamType[Any] | type:
    if setting.enum:
        return WordType(getattr(choices, setting.enum))
    if setting.reads == READ_DURATION:
        return Duration(positive=setting.over is not None)
    if setting.kind == "int" and setting.least is not None:
        return click.IntRange(int(setting.least), MOST if setting.most is None else int(setting.most))
    for name in (setting.reads, *setting.checks):
        if name in TYPES:
            return TYPES[name]
    return float if setting.kind == "float" else str
