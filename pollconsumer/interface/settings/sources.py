"""Settings read and type-checked by pydantic-settings. Slow to import: only for settings that are not cached."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Strict, ValidationError, create_model
from pydantic_settings import BaseSettings, InitSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from pollconsumer.core.errors import ConfigurationError, suggestion
from pollconsumer.interface.settings.environment import keys_of, optional, with_environment
from pollconsumer.interface.settings.model import SECTIONS, TABLES, Settings
from pollconsumer.interface.settings.rules import refusal

EXPECTED = {
    "bool_type": "expected true or false",
    "int_type": "expected an integer",
    "float_type": "expected a number",
    "string_type": "expected text",
    "tuple_type": "expected a list",
    "dict_type": "expected a table",
    "model_type": "expected a section of keys",
}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


def read(path: Path | None, variables: Mapping[str, str]) -> dict[str, Any]:
    """The values of all settings by name, sections as dicts, with checked types and unchecked ranges.

    ``path`` is an existing TOML file; ``variables`` are those of the environment that begin with POLLCONSUMER_.
    ConfigurationError names the first invalid key or variable.
    """

    class Sources(BaseSettings):
        model_config = SettingsConfigDict(extra="forbid", case_sensitive=True)

        @classmethod
        def settings_customise_sources(cls, settings_cls: type[BaseSettings], *_: Any, **__: Any) -> tuple[Any, ...]:
            file = TomlConfigSettingsSource(settings_cls, path).toml_data
            return (InitSettingsSource(settings_cls, with_environment(file, variables)),)

    if path is not None and not path.is_file():
        raise ConfigurationError("configuration file is not a regular file", path, "copy it into one")
    try:
        return _model(Settings, Sources)().model_dump()
    except ValidationError as failure:
        raise _refused(failure.errors(include_url=False)[0]) from None
    except (ValueError, RecursionError) as failure:  # from the TOML parser
        raise _not_toml(path, failure) from None


def _model(kind: type, base: type[BaseModel]) -> type[BaseModel]:
    """A model with the names, types and defaults of the dataclass ``kind``."""
    names: dict[str, Any] = {}
    for name, hint, default in keys_of(kind):
        if name in SECTIONS and kind is Settings:
            section = _model(hint, _Section)
            names[name] = (section, section())
        elif name in TABLES and kind is Settings:
            names[name] = (dict[str, _model(TABLES[name], _Section)], {})  # type: ignore[misc]  # made just now
        else:
            names[name] = (_read_as(hint), default)
    return create_model(kind.__name__, __base__=base, **names)


def _read_as(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        kind, parse = get_args(hint)
        return Annotated[kind, BeforeValidator(_scalars_only(parse))]
    kind, may_be_none = optional(hint)
    if kind in (bool, int, float):
        return Annotated[kind, Strict()] | None if may_be_none else Annotated[kind, Strict()]
    return hint


def _scalars_only(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read_scalar(value: Any) -> Any:
        try:
            return parse(value)
        except (TypeError, OverflowError):
            raise ValueError("expected a number, or text with a unit") from None

    return read_scalar


def _refused(error: Any) -> ConfigurationError:
    """One of pydantic's errors as our error line."""
    path = ".".join(part for part in error["loc"] if isinstance(part, str))
    if error["type"] == "extra_forbidden":
        section, _, key = path.rpartition(".")
        table = TABLES.get(section.partition(".")[0])
        kind = table or (SECTIONS[section] if section else Settings)
        siblings = [name for name, _, _ in keys_of(kind)]
        return ConfigurationError("unknown key", path, suggestion(key, siblings))
    rule = EXPECTED.get(error["type"]) or error["msg"].removeprefix("Value error, ").replace(
        "Input should be", "expected"
    )
    refused = refusal(path, error["input"], rule)
    assert isinstance(refused, ConfigurationError)
    return refused


def _not_toml(path: Path | None, failure: Exception) -> ConfigurationError:
    """Where and why the file is invalid TOML: with the key of that line, never its value, which may be a secret."""
    if isinstance(failure, UnicodeDecodeError):
        return ConfigurationError("configuration file is not UTF-8", path, f"see byte {failure.start}")
    if isinstance(failure, RecursionError):
        return ConfigurationError("configuration file is not valid TOML", path, "nested too deeply")
    reason, _, place = str(failure).removesuffix(")").partition(" (at ")
    reason = reason.partition(":")[0]  # beyond it, advice for programmers
    lines = path.read_text(encoding="utf-8").splitlines() if path else []
    if place == "end of document" and lines:
        place = f"line {len(lines)}, column {len(lines[-1]) + 1}"
    line = re.match(r"line (\d+)", place)
    key = re.match(r"\s*([\w.-]+)\s*=", lines[int(line[1]) - 1]) if line and int(line[1]) <= len(lines) else None
    if key:
        place += f", key {key[1]}"
    return ConfigurationError("configuration file is not valid TOML", path, f"{place}: {reason}" if place else reason)
