"""Every setting with every odd value, in the file and in the environment: taken, or refused in one line that is short,
and acts on no terminal; and the declared model takes the same."""

from __future__ import annotations

import json
import tomllib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from pollconsumer import PollConsumer
from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.spans import parse_duration
from pollconsumer.interface.settings.declared import Settings
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.interface.settings.model import declared_fields
from pollconsumer.interface.settings.names import variable
from pollconsumer.interface.settings.reading import read
from pollconsumer.testing import Sandbox
from tests.core.test_text import is_harmless
from tests.inner import calls_of
from tests.interface.odd_values import LONG, ODD, WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGEST = 600
"""Characters of an error: a value has 80."""
NEEDED: dict[str, dict[str, Any]] = {
    "commands": {"command": ["true"]},
    "recurrences": {"handler": "f", "every": "1h"},
}
"""What an entry of a table must have beside the key in question."""


def paths() -> Iterator[tuple[str, ...]]:
    """All keys, those of tables in an entry."""
    fields = declared_fields()
    for section, keys in fields.sections.items():
        yield from ((section, key) if section else (key,) for key in keys)
    for table, keys in fields.tables.items():
        yield from ((table, "entry", key) for key in keys)


PATHS = {".".join(path): path for path in paths()}


def as_toml(value: Any) -> str:
    """``value`` in TOML; surrogates, which no file can have, as the bytes that they stand for."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {as_toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, float):
        return str(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value).lower()


def written(path: tuple[str, ...], value: Any) -> bytes:
    *section, key = path
    given = {key: value} | (NEEDED.get(path[0], {}) if len(path) > 1 else {})
    if path[:1] == ("recurrences",) and key == "cron":
        del given["every"]
    given[key] = value
    head = f"[{'.'.join(section)}]\n" if section else ""
    text = head + "".join(f"{name} = {as_toml(each)}\n" for name, each in given.items())
    return (
        text.replace("\x1b", "\\u001b")
        .replace("\0", "\\u0000")
        .replace("\x7f", "\\u007f")
        .encode("utf-8", "surrogateescape")
    )


def verdict(config: Path) -> str:
    """Empty, or the refusal."""
    try:
        load_settings(config)
    except ConfigurationError as error:
        said = str(error)
        assert len(said) < LONGEST, said[:LONGEST]
        assert is_harmless(said)
        assert error.exit_code == 78  # noqa: PT017  the error is the verdict
        return said
    return ""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


@pytest.mark.matrix
@pytest.mark.parametrize("path", PATHS)
def test_a_setting_of_the_file_is_taken_or_refused_in_a_line(config: Path, path: str) -> None:
    for value in ODD.values():
        config.write_bytes(written(PATHS[path], value))
        verdict(config)


@pytest.mark.matrix
@pytest.mark.parametrize("path", PATHS)
def test_a_variable_is_taken_or_refused_in_a_line(config: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    table = PATHS[path][0]
    if len(PATHS[path]) == 3:
        others = {key: value for key, value in NEEDED.get(table, {}).items() if key != PATHS[path][-1]}
        if path.endswith(".cron"):
            others.pop("every")
        entry = "".join(f"{key} = {as_toml(value)}\n" for key, value in others.items())
        config.write_text(f"[{table}.entry]\n{entry}")
    else:
        config.write_text("")
    for name, value in ODD.items():
        text = value if isinstance(value, str) else json.dumps(value) if name != "thousand digits" else "1" + "0" * 1000
        if "\0" in text:
            continue  # no environment has it
        monkeypatch.setenv(variable(path), text)
        verdict(config)


@pytest.mark.matrix
@pytest.mark.parametrize("path", PATHS)
def test_the_declared_model_takes_the_same_as_the_reader(path: str) -> None:
    for name, value in ODD.items():
        content = written(PATHS[path], value)
        try:
            given = tomllib.loads(content.decode())
        except ValueError:
            continue
        taken: object = None
        with suppress(ConfigurationError):
            taken = read(None, content, {})
        modelled: object = None
        with suppress(ValidationError):
            modelled = Settings.model_validate(given).model_dump(exclude_unset=True)
        assert repr(taken) == repr(modelled), name


def test_each_key_is_tried() -> None:
    fields = declared_fields()
    count = sum(map(len, fields.sections.values())) + sum(map(len, fields.tables.values()))
    assert len(PATHS) == count


@pytest.mark.matrix
@pytest.mark.parametrize("path", PATHS)
def test_a_long_value_is_cut(config: Path, path: str) -> None:
    config.write_bytes(written(PATHS[path], LONG))
    assert "x" * 81 not in verdict(config)


@pytest.mark.parametrize("text", ['namespace = "n"\n', "", "[consumer]\ntimeout = '30s'\n"])
def test_a_file_may_begin_with_a_byte_order_mark(config: Path, text: str) -> None:
    config.write_bytes(b"\xef\xbb\xbf" + text.encode())
    marked = vars(load_settings(config))
    config.write_bytes(text.encode())
    assert marked == vars(load_settings(config))


def test_an_error_behind_a_byte_order_mark_has_its_place(config: Path) -> None:
    config.write_bytes(b"\xef\xbb\xbfnamespace = \n")
    assert "line 1, column 13, key namespace" in verdict(config)


@pytest.mark.parametrize("word", WORDS)
def test_the_name_of_an_entry_is_taken_or_refused_in_a_line(config: Path, word: str) -> None:
    for table in declared_fields().tables:
        name = json.dumps(WORDS[word])
        if "\\ud" in name and word == "lone surrogate":
            continue  # no text of TOML has it
        needed = NEEDED.get(table, {"max_in_flight": 1})
        config.write_text(f"[{table}.{name}]\n" + "".join(f"{key} = {as_toml(each)}\n" for key, each in needed.items()))
        verdict(config)


@pytest.mark.parametrize("period", [3600, 90.5, "1h", "3600"])
def test_a_period_is_a_number_of_seconds_or_text_wherever_it_is_given(config: Path, period: str | float) -> None:
    app = PollConsumer()
    app.every(period, name="decorated")(lambda: None)
    config.write_bytes(written(PATHS["recurrences.entry.every"], period))
    with Sandbox(app) as sandbox:
        app.recurrences.put("put", every=period, handler="f")
        [put] = [each.recurrence for each in app.recurrences if each.recurrence and each.recurrence.name == "put"]
        sandbox.run()
    [decorated] = [each.every for each in calls_of(app).recurring.values()]
    [configured] = [each.every for each in load_settings(config).recurrences.values()]
    assert {parse_duration(str(each)) for each in (put.every, decorated, configured)} == {parse_duration(period)}
