"""Reads and checks settings by pydantic-settings. It imports slowly, so that it is used only for a file that has not
been read before, and to say what is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import InitSettingsSource

from pollconsumer.core.errors import ConfigurationError, suggestion
from pollconsumer.interface.settings.declaration.declared import Settings
from pollconsumer.interface.settings.declaration.field_table import described
from pollconsumer.interface.settings.environment import with_environment
from pollconsumer.interface.settings.fields import EXPECTED
from pollconsumer.interface.settings.rules import refusal

TYPES = {f"{kind}_type": rule for kind, rule in EXPECTED.items()} | {"model_type": "expected a section of keys"}
RANGES = ("greater_than", "greater_than_equal", "less_than_equal")
"""pydantic's names of errors: for a value of another type than the declared one (with our rule), or out of range."""


def read(path: Path | None, variables: Mapping[str, str]) -> dict[str, Any]:
    """The given values by name, sections as dicts, each value checked alone.

    ``path`` is an existing TOML file; ``variables`` are the environment's that begin with POLLCONSUMER_.
    ConfigurationError names the first invalid key or variable.
    """
    if path is not None and not path.is_file():
        raise ConfigurationError("configuration file is not a regular file", path, "copy it into one")
    make: Any = Settings
    try:
        return dict(make(source=_Source(path, variables)).model_dump(exclude_unset=True))
    except ValidationError as failure:
        raise _refused(failure.errors(include_url=False)[0]) from None
    except (ValueError, RecursionError) as failure:  # from the TOML parser
        raise _not_toml(path, failure) from None


class _Source(InitSettingsSource):
    """The values of the file, overridden by the variables. Unlike the sources of pydantic-settings, a variable takes
    the place of a whole table; and launches override kept values by the same code."""

    def __init__(self, path: Path | None, variables: Mapping[str, str]) -> None:
        file = tomllib.loads(_text_of(path)) if path else {}
        super().__init__(Settings, with_environment(file, variables, described()))


def _text_of(path: Path) -> str:
    """The text of a file, without the byte order mark that some editors begin it with."""
    return path.read_bytes().decode("utf-8-sig")


def _refused(error: Any) -> ConfigurationError:
    """Our error line for one of pydantic's errors."""
    path, table = ".".join(part for part in error["loc"] if isinstance(part, str)), described()
    if error["type"] == "extra_forbidden":
        section, _, key = path.rpartition(".")
        name = section.partition(".")[0]
        known = [*table.section(name), *([] if name else [*table.sections, *table.tables])]
        there = table.path_of(key)
        place = "" if not there else f"did you mean {there}{'' if '.' in there else ', above the first [table]'}?"
        return ConfigurationError("unknown key", path, suggestion(key, [each for each in known if each], place))
    rule = TYPES.get(error["type"]) or error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    setting = table.find(path)
    if error["type"] in RANGES and setting is not None:
        rule = f"must be {setting.range}"
    refused = refusal(path, error["input"], rule)
    assert isinstance(refused, ConfigurationError)
    return refused


def _not_toml(path: Path | None, failure: Exception) -> ConfigurationError:
    """Our error line for a file that is not TOML: it names the key of the line, never its value, which may be a
    secret."""
    if isinstance(failure, UnicodeDecodeError):
        return ConfigurationError("configuration file is not UTF-8", path, f"see byte {failure.start}")
    if isinstance(failure, RecursionError):
        return ConfigurationError("configuration file is not valid TOML", path, "nested too deeply")
    reason, _, place = str(failure).removesuffix(")").partition(" (at ")
    reason = reason.partition(":")[0]  # beyond it, advice for programmers
    lines = _text_of(path).splitlines() if path else []
    if place == "end of document" and lines:
        place = f"line {len(lines)}, column {len(lines[-1]) + 1}"
    line = re.match(r"line (\d+)", place)
    key = re.match(r"\s*([\w.-]+)\s*=", lines[int(line[1]) - 1]) if line and int(line[1]) <= len(lines) else None
    if key:
        place += f", key {key[1]}"
    return ConfigurationError("configuration file is not valid TOML", path, f"{place}: {reason}" if place else reason)
