"""A setting is declared once: its default, its range and its meaning stand nowhere else."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pollconsumer
from pollconsumer.interface.settings.declared import LaunchSettings
from pollconsumer.interface.settings.model import READ_DURATION, DeclaredField, declared_fields
from tests.interface.references import CONFIG, REFERENCE, declared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.site import Site

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
            setting = declared_fields().find(f"{section}.{key}".lstrip("."))
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


def allows(schema: Any, node: Any, value: Any) -> bool:
    """Whether ``node`` of the ``schema`` takes a value, as an editor finds it."""
    if "$ref" in node:
        return allows(schema, schema["$defs"][node["$ref"].rpartition("/")[2]], value)
    if "anyOf" in node:
        return any(allows(schema, each, value) for each in node["anyOf"])
    if "enum" in node and value not in node["enum"]:
        return False
    if isinstance(value, dict):
        others, known = node.get("additionalProperties", True), node.get("properties", {})
        inner = [(known.get(key, others), each) for key, each in value.items()]
        return node.get("type") == "object" and all(
            each is True or (each is not False and allows(schema, each, held)) for each, held in inner
        )
    return node.get("type") in {bool: ["boolean"], int: ["integer", "number"], list: ["array"]}.get(
        type(value), ["number" if isinstance(value, float) else "string"]
    )


def test_the_schema_for_editors_takes_what_config_toml_may_say_and_refuses_unknown_keys(site: Site) -> None:
    (site.directory / "config.toml").write_text("timeout = 0\n")  # nothing of it is read
    schema = site.json("check", "--schema")
    lines = [line.removeprefix("# ") if " = " in line else line for line in CONFIG.read_text("utf-8").splitlines()]
    given = [tomllib.loads(CONFIG.read_text("utf-8")), {"consumer": {"timeout": 3, "memory_limit": 1 << 30}}]
    section = ""
    for line in lines:
        if header := re.match(r"(?:# )?(\[[\w.]+])", line):
            section = header[1]
        elif re.match(r"\w+ = ", line):
            given.append(tomllib.loads(f"{section}\n{line}\n"))
    assert len(given) > 30
    assert [each for each in given if not allows(schema, schema, each)] == []
    for wrong in ({"timeout": 0}, {"consumer": {"timeot": 3}}, {"queues": {"a": {"weight": "2"}}}, {"mover": 5}):
        assert not allows(schema, schema, wrong)
