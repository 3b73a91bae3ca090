"""A setting is declared once: its default, its range and its meaning stand nowhere else. Both ways of reading agree."""

from __future__ import annotations

import ast
import json
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

import pollconsumer
from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.settings.declaration import sources
from pollconsumer.interface.settings.declaration.declared import LaunchSettings
from pollconsumer.interface.settings.declaration.field_table import described
from pollconsumer.interface.settings.fields import READ_DURATION, DeclaredField, as_json, table_of
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.interface.settings.model import settings_of
from pollconsumer.interface.settings.names import variable
from pollconsumer.interface.settings.rules import check_strict, check_together
from tests.interface.references import CONFIG, REFERENCE, declared

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(pollconsumer.__file__).parent
DECLARATIONS = {"declared.py", "declared_tables.py"}
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path.name not in DECLARATIONS)
GUIDES = sorted(
    path
    for path in (*CONFIG.parent.glob("*.md"), *(CONFIG.parent / "docs").rglob("*.md"))
    if REFERENCE not in path.parents
)
INHERITED = LaunchSettings.model_fields.keys()


def fields() -> Iterator[tuple[str, Any, DeclaredField]]:
    """Path, declared field, and what a launch knows of it; of those that consumer and mover share, once."""
    for section, found in declared().items():
        for key, field in found.items():
            setting = described().find(f"{section}.{key}".lstrip("."))
            assert setting is not None
            if section != "mover" or key not in INHERITED:
                yield f"{section}.{key}", field, setting


def plain(text: str) -> str:
    return " ".join(text.replace("`", "").split()).rstrip(".")


def test_every_setting_says_what_it_is_and_none_as_another() -> None:
    said = [plain(field.description or "") for _, field, _ in fields()]
    assert all(said)
    assert sorted(said) == sorted(set(said))


def test_no_meaning_of_a_setting_stands_a_second_time() -> None:
    texts = {path: plain(path.read_text("utf-8")) for path in (*SOURCES, *GUIDES)}
    meanings = {path: plain(field.description) for path, field, _ in fields() if len(field.description) > 30}
    assert [(name, path.name) for name, said in meanings.items() for path, text in texts.items() if said in text] == []


def test_no_meaning_repeats_the_range_or_the_default_beside_it() -> None:
    for path, field, setting in fields():
        limits = [f"{limit:g}" for limit in (setting.least, setting.most, setting.over) if limit is not None]
        numbers = re.findall(r"\d+(?:\.\d+)?", field.description)
        if setting.reads != READ_DURATION and limits:
            assert not {*limits} & {*numbers}, path


def values_in(path: Path) -> Iterator[tuple[str, object]]:
    """Names of attributes and parameters, with the constants that they have by default."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
        ):
            yield node.target.id, node.value.value
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            every = [*given.posonlyargs, *given.args]
            defaults = [
                *zip(every[::-1], given.defaults[::-1], strict=False),
                *zip(given.kwonlyargs, given.kw_defaults, strict=True),
            ]
            yield from ((arg.arg, value.value) for arg, value in defaults if isinstance(value, ast.Constant))


def test_no_default_of_a_setting_stands_a_second_time() -> None:
    """Apart from 0 and 1, which are the least of what they count."""
    known = {(setting.key, setting.default) for _, _, setting in fields() if isinstance(setting.default, int | float)}
    known = {(key, value) for key, value in known if value not in (0, 1)}
    assert [(path.name, *each) for path in SOURCES for each in values_in(path) if each in known] == []


def test_no_range_of_a_setting_stands_a_second_time() -> None:
    """As ``1 <= value <= 256``, or in words."""
    ends = {f"{setting.most:.15g}" for _, _, setting in fields() if setting.kind == "int" and setting.most is not None}
    again = re.compile(rf"\b1(?:-| to | <= \w+ <= |, )(?:{'|'.join(ends)})\b(?! of| letters|\))")
    found = [
        (path.name, hit[0])
        for path in SOURCES
        for hit in again.finditer(path.read_text("utf-8").replace("_000", "000"))
    ]
    assert found == []


def test_the_fields_survive_the_cache() -> None:
    written = json.dumps(as_json(described()))
    assert json.dumps(as_json(table_of(json.loads(written)))) == written


# Both ways of reading

NUMBERS = st.sampled_from(
    ["0", "1", "2.5", "64", "65", "256", "257", "-1", "nan", "inf", "1e400", " 7 ", "1_0", "9" * 5000, "x"]
)
DURATIONS = st.sampled_from(["5s", "0", "1m30s", "400d", "1ms", "100ms", "-1s", "soon", "7"])
WORDS = """default a,b ["a","b"] ["a",3] [ {} {"a":1} {"first":"2s"} ~ /x none 64,65 [64] 100/1m 60/1h 7d/100 1d
embedded redis://h http://h https://h/x 1MiB true False baton Baton strict json warn drop UTC Mars/Base
A=b a-token-of-sixteen null
"""
TEXTS = st.sampled_from([*WORDS.split(), "* * * * *", "61 * * * *", "a b", "x" * 65])
NAMES = [variable(path.replace("NAME", "N")) for path, _, _ in fields()]
NAMES += [variable("recurrences.N.payload.a"), variable("commands.N.retry.first"), variable("queues.n.weight")]
FILES = st.sampled_from(
    [
        "",
        '[consumer]\ntimeout = "50s"\nqueues = ["N", "b"]\nmin_margin = 3\n[mover]\ngrace = 5\n',
        '[queues.n]\nweight = 3\n[queues.b]\nquota = "5/1m"\n',
        "[queues.n]\n[queues.N]\nweight = 2\n",
        '[recurrences.n]\nhandler = "h"\nevery = "1m"\npayload = { a = 1, B = 2 }\n[commands.N]\ncommand = ["true"]\n',
        "[commands.n]\ntimeout = 5\n",
        "[consumer]\ntimeout = 0\n",
        'store = "redis://h"\n[strict]\nreplicas = 1\n',
    ]
)


@given(text=FILES, variables=st.dictionaries(st.sampled_from(NAMES), NUMBERS | DURATIONS | TEXTS, max_size=4))
@example(text="", variables={variable("consumer.queues"): "a", variable("queues.A.weight"): "3"})
def test_variables_laid_over_what_was_kept_give_what_pydantic_reads(text: str, variables: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as directory, mock.patch.dict(os.environ, XDG_CACHE_HOME=directory):
        config = Path(directory) / "any.toml"
        config.write_text(text)
        with suppress(ConfigurationError):
            load_settings(config)  # which keeps it, if it is valid alone
        with mock.patch.dict(os.environ, variables):
            found = outcome(lambda: load_settings(config)).removeprefix(f"{config}: ")  # where a file is to blame
            assert found == outcome(lambda: read_by_pydantic(config, variables)).removeprefix(f"{config}: ")


def read_by_pydantic(config: Path, variables: dict[str, str]) -> Any:
    settings = settings_of(sources.read(config if config.stat().st_size else None, variables), config.parent, config)
    check_together(settings)
    check_strict(settings)
    return settings


def outcome(read: Any) -> str:
    try:
        return repr(vars(read()))
    except ConfigurationError as error:
        return str(error)
