"""Types of command-line values, whose errors are ``VALUE; RULE``, and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from pollconsumer.core import choices
from pollconsumer.core.errors import shown, suggestion
from pollconsumer.core.messages.message import CREATED_BY, MAX_PRIORITY, MOST_ATTEMPTS, read_header
from pollconsumer.core.notation.instants import read_instant
from pollconsumer.core.notation.text import is_text
from pollconsumer.core.spans import YEAR, format_duration, parse_duration
from pollconsumer.interface.cli.output import note_json
from pollconsumer.interface.named_files import named_path
from pollconsumer.interface.settings.model import (
    CHECK_CRON,
    CHECK_NAME,
    READ_DURATION,
    READ_MEMORY,
    DeclaredField,
    declared_fields,
)
from pollconsumer.interface.settings.values import NAME, NAME_RULE, check_cron, parse_memory
from pollconsumer.runtime.new_messages import LONGEST_DELAY

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType

Function = TypeVar("Function", bound=Callable[..., Any])
MOST = 10**9
"""The largest value of a numeric option that declares no limit."""


class Once(click.Option):
    """An option that may be given only once; click would silently use the last value. ``former``: an earlier name,
    which is accepted but not shown."""

    def __init__(self, *given: Any, former: str = "", **more: Any) -> None:
        super().__init__(*given, **more)
        self.former = [former] if former else []

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown = self.opts
        # So the parser accepts both names, and keeps all values.
        self.opts, self.multiple = shown + self.former, True
        super().add_to_parser(parser, ctx)
        self.opts, self.multiple = shown, False

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        given = opts.get(self.name or "", ())
        if isinstance(given, list):
            if len(given) > 1:
                raise click.BadParameter("given twice; give it once", ctx=ctx, param=self)
            opts = {**opts, self.name or "": given[0]}
        return super().consume_value(ctx, opts)


class Value(_ParamType):
    """A value that the function ``read`` returns for a text; the text itself if ``read`` only checks it, and returns
    None. ``read`` raises a ValueError with the rule if the text breaks one. A default that is no text stays as it
    is."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self.read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            read = self.read(value)
        except ValueError as error:
            self.fail(f"{shown(value) or 'empty'}; {error}", param, ctx)
        return value if read is None else read


class PlainText(click.types.StringParamType):
    """Text that can be sent and printed. It refuses bytes that are not UTF-8, which arrive as lone surrogates."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = super().convert(value, param, ctx)
        if not is_text(text):
            self.fail(f"{shown(text)}; must be UTF-8", param, ctx)
        return text


class Duration(Value):
    """A duration, in seconds as a float: above 0 if ``positive``, at most ``most``."""

    def __init__(self, *, positive: bool = False, most: float = YEAR) -> None:
        super().__init__("duration", self._seconds)
        self._positive, self._most = positive, most

    def _seconds(self, text: str) -> float:
        rule = "must be > 0" if self._positive else "must be 0 or more"
        if text.lstrip().startswith("-"):
            raise ValueError(rule)
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise ValueError(f"unknown unit: {error}" if str(error).startswith("units") else str(error)) from None
        if self._positive and seconds == 0:
            raise ValueError(rule)
        if seconds > self._most:
            raise ValueError(f"must be at most {format_duration(self._most)}")
        return seconds


class WordType(click.Choice[str]):
    """One of ``words``, in any case. For an enum the value is the member, and help shows the members' values instead of
    their names, which click would show."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = {str(word): word for word in words}
        super().__init__([*self._words], case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return self._words[super().convert(value, param, ctx)]

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ARG002  # click's
        all_words = f"must be one of {', '.join(map(repr, self._words))}"
        return f"{shown(repr(value))}; {suggestion(str(value), self._words, all_words)}"


def bound(parameter: click.Parameter) -> None:
    """Make a parameter of one of click's own types refuse text that is not UTF-8, and numbers above `MOST`."""
    kind = parameter.type
    if kind is click.STRING:
        parameter.type = PlainText()
    elif isinstance(kind, click.IntRange) and kind.max is None:
        parameter.type = click.IntRange(kind.min, MOST)


def _as_mapping(ctx: click.Context, param: click.Parameter, given: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    """The headers as a dict. None if the option was not given."""
    names = [name for name, _ in given]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{shown(name)} is given twice", ctx, param)
    return dict(given) or None


def option(flag: str, help_text: str, kind: Any = None, name: str = "", **more: Any) -> Callable[[Function], Function]:
    """A decorator for an option that may be given only once. ``name``: its parameter, if that differs from the flag."""
    return click.option(flag, *filter(None, [name]), cls=Once, type=kind, help=help_text, **more)


def header_option(help_text: str) -> Callable[[Function], Function]:
    """The option ``--header NAME=VALUE``, as ``headers``; ``help_text`` is its help."""
    kind = Value("NAME=VALUE", read_header)
    return click.option("--header", "headers", multiple=True, type=kind, callback=_as_mapping, help=help_text)


def label_options(what: str) -> Callable[[Function], Function]:
    """The options ``--header`` and ``--created-by``, both as ``headers``. ``what``: the things to select, for help."""

    def give(command: Function) -> Function:
        @wraps(command)
        def call(*args: Any, headers: dict[str, str] | None, created_by: str | None, **others: Any) -> Any:
            if created_by is not None:
                headers = {**(headers or {}), CREATED_BY: created_by}
            return command(*args, headers=headers, **others)

        named = option("--created-by", f"{what} that this person created.")(call)
        return cast("Function", header_option(f"{what} with this header. Repeatable: all must match.")(named))

    return give


def priority_option(help_text: str = "") -> Callable[[Function], Function]:
    """The option ``--priority``. ``help_text`` is appended to its help."""
    kind = click.IntRange(-MAX_PRIORITY, MAX_PRIORITY)
    return option("--priority", f"Smaller numbers come first.{help_text}", kind)


def message_options(function: Function) -> Function:
    """A decorator for the options in ``OccurrenceOptions``, which single messages and those of recurrences can have."""
    for declare in reversed(_OF_MESSAGES):
        function = declare(function)
    return function


def limit_option(default: int = 100, *, most: int | None = None) -> Callable[[Function], Function]:
    """The option ``--limit``. ``most``: its largest value."""
    help_text, kind = "Show at most this many.", click.IntRange(1, most)
    return option("--limit", help_text, kind, default=default, show_default=True)


def json_option(help_text: str) -> Callable[[Function], Function]:
    """The option ``--json``. `wants_json` returns whether it was given."""
    return click.option("--json", is_flag=True, expose_value=False, callback=note_json, help=help_text)


def _past(text: str) -> Callable[[int], int]:
    """A function that is given the present instant, and returns the one that ``text`` means, both in epoch ms.
    ``text``: a time, in this machine's zone if it has no offset, or how long ago."""
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


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(NAME_RULE if text else f"empty name, {NAME_RULE}")
    return text


DUE_TIME = Value("time", read_instant)
PAST = Value("time", _past)
NAMED_PATH = Value("path", named_path)
NAMED_FILE = Value("path", lambda text: text if named_path(text) else "")
"""A path as written: ``./-`` is a file, ``-`` is standard input or output."""
CRON, MEMORY_SIZE, QUEUE_NAME = Value("cron", check_cron), Value("size", parse_memory), Value("name", _name)
_OF_MESSAGES = (
    option("--concurrency-key", "Handle messages with this key one at a time."),
    option(
        "--concurrency-limit", "With --concurrency-key: handle this many at a time. Default: 1.", click.IntRange(1, 255)
    ),
    option("--order-key", "Begin it when the queue's earlier messages with this key have ended, retries included."),
    option("--rate-key", "Limit the rate of messages with this key."),
    option(
        "--rate",
        "With --rate-key: at most this many per period, as 60/1h. Default: the queue's rate.",
        metavar="N/PERIOD",
    ),
    option(
        "--expires", "Do not start it later than this after it is due.", Duration(positive=True, most=LONGEST_DELAY)
    ),
    header_option("Add a header. Repeatable."),
    option("--timeout", "How long the handler may run. Default: the handler's timeout.", Duration(positive=True)),
    option(
        "--max-attempts",
        "Attempts before it is a dead letter. Default: the handler's.",
        click.IntRange(1, MOST_ATTEMPTS),
    ),
    option("--retry", "Name of a retry policy. Default: the handler's.", metavar="POLICY"),
)
JSON_OBJECT, JSON_ARRAY = json_option("Print one JSON object."), json_option("Print one JSON array.")


TYPES: dict[str, click.ParamType[Any]] = {CHECK_CRON: CRON, READ_MEMORY: MEMORY_SIZE, CHECK_NAME: QUEUE_NAME}
"""Function that reads or checks a setting → the type of that setting's option on the command line."""


def settings_of_section(section: str) -> Callable[[Function], Function]:
    """A decorator that gives a command an option for each setting of ``section`` that declares a flag. If the option is
    not given, its value is None or (), and the setting stays."""

    def declare(function: Function) -> Function:
        for setting in [*declared_fields().section(section).values()][::-1]:
            if setting.flag is not None:
                function = _option_of(setting, setting.flag)(function)
        return function

    return declare


def _option_of(setting: DeclaredField, flag: str) -> Callable[[Function], Function]:
    help_text, default = setting.help.replace("`", ""), setting.default
    if default not in (None, [], False):
        default = format_duration(default) if setting.reads == READ_DURATION else default
        help_text += f"  [default: {default:g}]" if isinstance(default, float) else f"  [default: {default}]"
    if setting.kind == "bool":
        switches = f"{flag}/--no-{flag.removeprefix('--')}"
        return click.option(switches, setting.key, is_flag=True, default=None, help=help_text)
    if setting.items is not None:
        help_text += "  [repeatable]"
        return click.option(flag, setting.key, type=QUEUE_NAME, multiple=True, help=help_text)
    former = f"--{setting.former.replace('_', '-')}" if setting.former else ""
    metavar = "URL" if setting.key == "store" else None
    kind = _type_of(setting)
    return option(flag, help_text, kind, name=setting.key, former=former, metavar=metavar)


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
