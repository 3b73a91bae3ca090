"""Settings read and checked by pydantic-settings. Slow to import: only for what was not remembered."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Strict, ValidationError, create_model
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.settings import (
    CONFIG_VARIABLE,
    PLACE,
    PREFIX,
    SECTIONS,
    TABLES,
    Settings,
    refusal,
    variable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

SERVICE_LINK = re.compile(
    PREFIX + r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""What Kubernetes sets in every container beside a Service named pollconsumer: no variables of ours."""

EXPECTED = {
    "bool_type": "expected true or false",
    "int_type": "expected an integer",
    "float_type": "expected a number",
    "string_type": "expected text",
    "tuple_type": "expected a list",
    "model_type": "expected a section of keys",
}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


def read(path: Path | None, variables: Mapping[str, str]) -> dict[str, Any]:
    """The values of all settings by name, sections as dicts of theirs, with the right types, ranges not yet checked.

    ``path`` is an existing TOML file; ``variables`` are those of the environment that begin with POLLCONSUMER_.
    ConfigurationError names the first key or variable that cannot be meant.
    """

    class Sources(BaseSettings):
        model_config = SettingsConfigDict(extra="forbid", case_sensitive=True, toml_file=path)

        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, TomlConfigSettingsSource(settings_cls)

    if path is not None and not path.is_file():
        raise ConfigurationError("configuration file is not a regular file", path, "copy it into one")
    environment = _environment(variables)
    try:
        return _model(Settings, Sources)(**environment).model_dump()
    except ValidationError as failure:
        raise _refused(failure.errors(include_url=False)[0]) from None
    except (ValueError, RecursionError) as failure:  # from the TOML parser
        raise _not_toml(path, failure) from None


def _model(kind: type, base: type[BaseModel]) -> type[BaseModel]:
    """A model with the names, types and defaults of the dataclass ``kind``."""
    names: dict[str, Any] = {}
    for name, hint, default in _keys(kind):
        if name in SECTIONS and kind is Settings:
            section = _model(hint, _Section)
            names[name] = (section, section())
        elif name in TABLES and kind is Settings:
            names[name] = (dict[str, _model(TABLES[name], _Section)], {})  # type: ignore[misc]  # made just now
        else:
            names[name] = (_read_as(hint), default)
    return create_model(kind.__name__, __base__=base, **names)


def _keys(kind: type) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of each key that may be set."""
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        if field.name not in PLACE or kind is not Settings:
            default = field.default_factory() if callable(field.default_factory) else field.default
            yield field.name, hints[field.name], default


def _read_as(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        kind, parse = get_args(hint)
        return Annotated[kind, BeforeValidator(_scalars_only(parse))]
    return Annotated[hint, Strict()] if hint in (bool, int, float) else hint


def _scalars_only(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read_scalar(value: Any) -> Any:
        try:
            return parse(value)
        except (TypeError, OverflowError):
            raise ValueError("expected a number, or text with a unit") from None

    return read_scalar


def _environment(variables: Mapping[str, str]) -> dict[str, Any]:
    """What the environment sets, nested as in the file."""
    nested: dict[str, Any] = {}
    paths = dict(_paths())
    known = {variable(path): path for path in paths} | {CONFIG_VARIABLE: None}
    for name, text in variables.items():
        if name not in known and not SERVICE_LINK.fullmatch(name):
            raise ConfigurationError("unknown variable", name, _suggestion(name, list(known)))
        path = known.get(name)
        if path is None or not text:
            continue
        section, _, key = path.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[key] = _decoded(text, paths[path])
    return nested


def _paths() -> Iterator[tuple[str, Any]]:
    """Every setting's path, such as ``consumer.timeout``, and its type."""
    for name, hint, _ in _keys(Settings):
        if name in SECTIONS:
            yield from ((f"{name}.{key}", kind) for key, kind, _ in _keys(SECTIONS[name]))
        elif name not in TABLES:
            yield name, hint


def _decoded(text: str, hint: Any) -> Any:
    """``text`` as the file would have it, or unchanged, to be refused, where it cannot be that.

    A list is written ``a,b`` or ``["a", "b"]``.
    """
    try:
        if get_origin(hint) is tuple:
            return json.loads(text) if text.startswith("[") else [item.strip() for item in text.split(",")]
        return hint(text) if hint in (int, float) else text
    except ValueError:
        return text


def _refused(error: Any) -> ConfigurationError:
    """The one line for what pydantic says about one value."""
    path = ".".join(part for part in error["loc"] if isinstance(part, str))
    if error["type"] == "extra_forbidden":
        section, _, key = path.rpartition(".")
        table = TABLES.get(section.partition(".")[0])
        kind = table or (SECTIONS[section] if section else Settings)
        siblings = [name for name, _, _ in _keys(kind)]
        return ConfigurationError("unknown key", path, _suggestion(key, siblings))
    rule = EXPECTED.get(error["type"]) or error["msg"].removeprefix("Value error, ").replace(
        "Input should be", "expected"
    )
    refused = refusal(path, error["input"], rule)
    assert isinstance(refused, ConfigurationError)
    return refused


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(sorted(known))}"


def _not_toml(path: Path | None, failure: Exception) -> ConfigurationError:
    """Where and why the file is no TOML: with the key of that line, never with its value, which may be a secret."""
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
