"""Settings as plain objects. They are created without pydantic, from a table of fields that is generated from the
declaration.

Each class of settings stands for the class with the same name in ``declared.py``, where its keys are declared; type
checkers see that class. After a change of ``declared.py``, ``python -m tests.interface.references`` writes
``fields.json`` again."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pollconsumer.core import choices
from pollconsumer.core.spans import format_duration
from pollconsumer.interface.settings.values import Placed

READ_ARGV, READ_DURATION, READ_MEMORY, READ_KEPT_SIZE, CHECK_NAME, CHECK_CRON = (
    f"pollconsumer.interface.settings.values:{name}"
    for name in ("read_argv", "read_duration", "read_memory", "read_kept_size", "check_name", "check_cron")
)
EXPECTED: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "bool": ("expected true or false", bool),
    "int": ("expected an integer", int),
    "float": ("expected a number", (int, float)),
    "string": ("expected text", str),
    "tuple": ("expected a list", (list, tuple)),
    "dict": ("expected a table", dict),
}
"""Kind of a field → the rule that its values follow, and the Python types of its values."""
TABLE = Path(__file__).with_name("fields.json")
S = TypeVar("S")
FOUND_AT = ("directory", "config", "nowhere")
"""Attributes of Settings that are no keys: they say where the file was found."""


class InvalidValue(ValueError):
    """An invalid value. The text is the rule that it breaks. ``value``: the value or its invalid item, to be shown."""

    def __init__(self, rule: str, value: object) -> None:
        super().__init__(rule)
        self.value = value


class DeclaredField(NamedTuple):
    """A declared field. Its attributes come from JSON, so functions are named ``module:function``. The function in
    ``reads`` turns the written value into the setting's. Those in ``checks`` raise ValueError for an invalid value."""

    key: str
    kind: str
    default: Any
    may_be_none: bool = False
    reads: str = ""
    checks: tuple[str, ...] = ()
    items: "DeclaredField | None" = None
    """The kind of the items, for a list."""
    words: tuple[str, ...] = ()
    enum: str = ""
    """The enum in ``core/choices.py`` whose members are the values."""
    over: float | None = None
    least: float | None = None
    most: float | None = None
    flag: str | None = None
    help: str = ""
    secret: bool = False
    former: str = ""
    """An earlier name of the key."""

    @property
    def range(self) -> str:
        """The range of values in words; empty if there is none."""
        shown = _duration if self.reads == READ_DURATION else "{:.15g}".format
        if self.over is not None:
            return f"> {shown(self.over)}" + (f", and at most {shown(self.most)}" if self.most is not None else "")
        if self.least is None or self.most is None:
            return ""
        if self.kind == "int":
            return f"{self.least}-{self.most}"
        return f"between {shown(self.least)} and {shown(self.most)}"

    def decoded(self, text: str) -> Any:
        """The TOML value that a variable's ``text`` stands for. Invalid text is returned as it is, and refused later.

        A list is written ``a,b`` or ``["a", "b"]``; a command only in the second form; a table as a JSON object."""
        try:
            if self.items is not None and self.reads != READ_ARGV and not text.startswith("["):
                return [int(part) if self.items.kind == "int" else part.strip() for part in text.split(",")]
            if self.kind in ("tuple", "dict"):
                return json.loads(text)
            if self.kind == "bool":
                return {"true": True, "false": False}.get(text.lower(), text)
            if self.kind in ("int", "float") and not self.reads:
                return int(text) if self.kind == "int" else float(text)
        except (ValueError, RecursionError):
            pass
        return text

    def accepted(self, written: Any) -> Any:
        """The setting's value, given the written value or the setting's value itself. InvalidValue if it is invalid."""
        if written is None and self.may_be_none:
            return None
        value = _called(self.reads, written) if self.reads else written
        if self.words and value not in self.words:
            *others, last = map(repr, self.words)
            raise InvalidValue(f"expected {', '.join(others)} or {last}", value)
        rule, types = EXPECTED[self.kind]
        is_of_kind = isinstance(value, types) and (self.kind == "bool" or not isinstance(value, bool))
        if not is_of_kind:
            raise InvalidValue(rule, value)
        if self.items is not None:
            value = tuple(self.items.accepted(each) for each in value)
        if not self._is_in_range(value):
            raise InvalidValue(f"must be {self.range}", written if self.may_be_none else value)
        for check in self.checks:
            _called(check, value, written)
        return self.restored(float(value) if self.kind == "float" else value)

    def _is_in_range(self, value: Any) -> bool:
        """Whether ``value`` is in the range, if there is one. NaN never is."""
        return (
            (self.over is None or value > self.over)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
        )

    def restored(self, value: Any) -> Any:
        """The setting's value, given what JSON made of it, without tuples and enums. ValueError for an unknown word."""
        if self.enum:
            return getattr(choices, self.enum)(value)
        return tuple(value) if self.kind == "tuple" else dict(value) if self.kind == "dict" else value


def _called(function: str, value: Any, written: Any = None) -> Any:
    module, _, name = function.partition(":")
    try:
        return getattr(import_module(module), name)(value)
    except ValueError as error:
        raise InvalidValue(str(error), value if written is None else written) from None


def _duration(seconds: float) -> str:
    return format_duration(seconds) if seconds else "0"


class FieldTable(NamedTuple):
    """All declared fields. ``sections``: section → key → field; the top of the file is the section with an empty name.
    ``tables``: table whose entries the user names, such as ``queues`` → key of an entry → field."""

    sections: Mapping[str, Mapping[str, DeclaredField]]
    tables: Mapping[str, Mapping[str, DeclaredField]]

    def section(self, name: str) -> Mapping[str, DeclaredField]:
        return self.sections[name] if name in self.sections else self.tables[name]

    def path_of(self, key: str) -> str:
        """The path of the first setting with the name ``key``, such as ``consumer.on_demand`` or ``queues.NAME.quota``.
        Empty if there is none."""
        prefixes = [
            *((name, keys) for name, keys in self.sections.items()),
            *((f"{name}.NAME", keys) for name, keys in self.tables.items()),
        ]
        return next((f"{prefix}.{key}".strip(".") for prefix, keys in prefixes if key in keys), "")

    def find(self, path: str) -> DeclaredField | None:
        """The field at a path such as ``consumer.timeout`` or ``queues.mail.quota``; None if unknown."""
        section, _, key = path.rpartition(".")
        name = section.partition(".")[0]
        if name in self.tables and section != name:
            return self.tables[name].get(key)
        return self.sections.get(section, {}).get(key)


@cache
def declared_fields() -> FieldTable:
    written = json.loads(TABLE.read_bytes())
    return FieldTable(_sections(written["sections"]), _sections(written["tables"]))


def _sections(written: Any) -> dict[str, dict[str, DeclaredField]]:
    return {name: {key: _field(given) for key, given in fields.items()} for name, fields in written.items()}


def _field(given: Any) -> DeclaredField:
    field = DeclaredField(**given)
    return field if field.items is None else field._replace(items=DeclaredField(**given["items"]))


class Values:
    """The values of a section, as attributes. Two sections are equal if their values are equal."""

    section = ""

    def __init__(self, **given: Any) -> None:
        known = declared_fields().section(self.section)
        if unknown := given.keys() - known.keys():
            raise TypeError(f"{type(self).__name__} has no {min(unknown)}")
        for key, setting in known.items():
            default = setting.default
            vars(self)[key] = given[key] if key in given else None if default is None else setting.restored(default)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]  # they hold dicts

    def __repr__(self) -> str:
        known = declared_fields().section(self.section)
        shown = [f"{key}={value!r}" for key, value in vars(self).items() if key not in known or not known[key].secret]
        return f"{type(self).__name__}({', '.join(shown)})"


class AllValues(Values, Placed):
    """All settings: keys at the top of the file, sections, and tables, as attributes."""

    def __init__(
        self, directory: Path | None = None, config: Path | None = None, nowhere: str | None = None, **given: Any
    ) -> None:
        nested = {name: given.pop(name, None) for name in (*SECTIONS, *TABLES)}
        super().__init__(**given)
        for name, value in nested.items():
            vars(self)[name] = value if value is not None else SECTIONS[name]() if name in SECTIONS else {}
        self.directory, self.config = Path.cwd() if directory is None else directory, config
        self.nowhere = nowhere
        """The text of the error for commands that need a configuration, where none is found. None if there is a file,
        or if the user has chosen a store or a namespace."""


def _class(section: str, name: str) -> Any:
    return type(f"{name.title()}Settings", (Values,), {"section": section})


SECTIONS = {
    name: _class(name, name)
    for name in ("consumer", "mover", "strict", "web", "dashboard", "doctor", "alarms", "pings", "logs")
}
TABLES = {name: _class(name, name.removesuffix("s")) for name in ("queues", "recurrences", "commands")}
"""Sections of the file whose entries the user names, such as ``[queues.mail]``."""

if TYPE_CHECKING:
    from pollconsumer.interface.settings import declared

    CommandSettings = declared.CommandSettings
    ConsumerSettings = declared.ConsumerSettings
    LogsSettings = declared.LogsSettings
    MoverSettings = declared.MoverSettings
    QueueSettings = declared.QueueSettings
    RecurrenceSettings = declared.RecurrenceSettings
    WebSettings = declared.WebSettings
    Settings = declared.Settings
else:
    ConsumerSettings, MoverSettings, LogsSettings = SECTIONS["consumer"], SECTIONS["mover"], SECTIONS["logs"]
    WebSettings = SECTIONS["web"]
    QueueSettings, RecurrenceSettings, CommandSettings = TABLES.values()
    Settings = AllValues


def changed(values: S, **changes: Any) -> S:
    """A copy of settings, or of a section, in which ``changes`` replace values."""
    return type(values)(**{**vars(values), **changes})


def settings_of(values: Any, directory: Path, config: Path | None, *, lenient: bool = False) -> Settings:
    """Settings with the given ``values``, as `as_values` returns them. After a way through JSON, tuples may be lists.

    AttributeError, KeyError, TypeError or ValueError for invalid values. ``lenient``: ignore unknown keys, which a
    launch of another version may send during an upgrade."""

    def restored(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
        known = declared_fields().section(section)
        chosen = {key: value for key, value in given.items() if key in known or not lenient}
        return {key: None if value is None else known[key].restored(value) for key, value in chosen.items()}

    given, nested = {**values}, dict[str, Any]()
    for name, kind in SECTIONS.items():
        nested[name] = kind(**restored(name, given.pop(name, {})))
    for name, kind in TABLES.items():
        nested[name] = {entry: kind(**restored(name, keys)) for entry, keys in given.pop(name, {}).items()}
    return Settings(**restored("", given), **nested, directory=directory, config=config)


def as_values(settings: Settings) -> dict[str, Any]:
    """All values of ``settings``, without the paths of file and directory. They are JSON, with tuples for lists."""
    found = {name: value for name, value in vars(settings).items() if name not in FOUND_AT}
    sections = {name: dict(vars(found[name])) for name in SECTIONS}
    tables = {name: {entry: dict(vars(keys)) for entry, keys in found[name].items()} for name in TABLES}
    return found | sections | tables
