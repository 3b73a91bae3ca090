"""Settings as plain objects, made of the declared fields without pydantic.

Each class stands for the class of its name in ``declared.py``, where its keys are declared; type checkers take it for
that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pollconsumer.interface.settings.fields import declared_fields
from pollconsumer.interface.settings.places import Placed

S = TypeVar("S")


class Values:
    """The values of a section, as attributes. Two are equal if all their values are."""

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
    """The values at the top of the file, and each section and table, as attributes."""

    def __init__(
        self, directory: Path | None = None, config: Path | None = None, nowhere: str | None = None, **given: Any
    ) -> None:
        nested = {name: given.pop(name, None) for name in (*SECTIONS, *TABLES)}
        super().__init__(**given)
        for name, value in nested.items():
            vars(self)[name] = value if value is not None else SECTIONS[name]() if name in SECTIONS else {}
        self.directory, self.config = Path.cwd() if directory is None else directory, config
        self.nowhere = nowhere
        """The text that says that no file was found, where nothing else names a store or a namespace; else None."""


def _class(section: str, name: str) -> Any:
    return type(f"{name.title()}Settings", (Values,), {"section": section})


SECTIONS = {
    name: _class(name, name) for name in ("consumer", "mover", "strict", "web", "dashboard", "doctor", "pings", "logs")
}
TABLES = {name: _class(name, name.removesuffix("s")) for name in ("queues", "recurrences", "commands")}
"""Sections whose keys are chosen by the user."""
PLACE = ("directory", "config", "nowhere")
"""Attributes of Settings that are no keys of the file: where it was found."""

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
    """A copy of settings, or of a section of them, with other values."""
    return type(values)(**{**vars(values), **changes})


def settings_of(values: Any, directory: Path, config: Path | None, *, lenient: bool = False) -> Settings:
    """Settings of given ``values``, as `as_values` makes them, or with lists for tuples, as JSON has them.

    AttributeError, KeyError, TypeError or ValueError for values that are invalid. ``lenient``: unknown keys are left
    out. While another version is being installed, its launch starts a process of this version.
    """

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
    """All values of ``settings`` but their place; JSON, if its lists may be tuples."""
    found = {name: value for name, value in vars(settings).items() if name not in PLACE}
    sections = {name: dict(vars(found[name])) for name in SECTIONS}
    tables = {name: {entry: dict(vars(keys)) for entry, keys in found[name].items()} for name in TABLES}
    return found | sections | tables
