"""docs/architecture.md says what the code does: its tables, its picture of a message's life, its quoted loop.

So does docs/messages.md: its states and options.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from itertools import pairwise

import pytest

from pollconsumer.core.lifecycle import State, Timestamps
from pollconsumer.interface.cli.messages.enqueue import enqueue
from pollconsumer.runtime.consumer import Consumer
from pollconsumer.runtime.new_messages import SendOptions
from pollconsumer.store import rows
from pollconsumer.store.keyspace import QUEUE_KEYS
from tests.store.commands_used import PACKAGE, keys_written_by, scripts

ROOT = PACKAGE.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PATHS = re.compile(r"`((?:\w+/)+(?:\w+\.(?:py|lua))?)`")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def table(section: str, first: str) -> list[list[str]]:
    """The rows of the table in a section whose first column is called ``first``, without their backticks."""
    _, _, rest = SECTIONS[section].partition(f"| {first} |")
    lines = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_keys_is_the_keyspace_with_the_scripts_that_write_each_key() -> None:
    written = {script: keys_written_by(script) for script in sorted(scripts())}
    assert table("The keyspace", "Word") == [
        [word, *key, ", ".join(script for script in written if word in written[script])]
        for word, key in QUEUE_KEYS.items()
    ]


def test_the_table_of_a_row_has_its_fields_where_they_are() -> None:
    names = [*vars(rows)]
    fields = names[names.index("FLAGS") : names.index("HANDLER") + 1]
    offsets = [getattr(rows, field) for field in fields]
    widths = [str(after - offset) for offset, after in pairwise(offsets)]
    assert [row[:3] for row in table("A row", "Field")] == [
        [*of_field] for of_field in zip(fields, map(str, offsets), [*widths, "…"], strict=True)
    ]


def test_every_room_is_in_its_table_and_every_layer_in_its_own() -> None:
    rooms = {
        f"{layer}/{path.parent.name}/"
        for layer in ("core", "store", "runtime", "interface")
        for path in (PACKAGE / layer).glob("*/__init__.py")
    }
    assert {row[0] for row in table("Layers and rooms", "Room")} == rooms
    assert {row[0] for row in table("Layers and rooms", "Layer")} == {
        f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")
    }


def test_the_loop_is_quoted_as_it_is() -> None:
    quoted = re.search(r"```python\n(.*?)```", SECTIONS["The loop"], re.DOTALL)
    assert quoted is not None
    assert quoted[1] == textwrap.dedent(inspect.getsource(Consumer.handle_until_stopped))


def test_the_picture_of_a_messages_life_has_every_state_and_timestamp() -> None:
    life = SECTIONS["A message's life"]
    assert set(re.findall(r"\w+_at\b", life)) >= {*Timestamps._fields}
    assert set(re.findall(r"\[(\w+)\]", life)) == {*State}


def test_the_page_on_messages_has_every_state_and_the_options_that_python_and_the_command_line_take() -> None:
    states, _, options = (ROOT / "docs" / "messages.md").read_text("utf-8").partition("## Sending")
    assert {*re.findall(r"^\| (\w+) \|", states, re.MULTILINE)} - {"State"} == {*State}
    table_of_options = options.partition("|---|---|\n")[2].partition("\n\n")[0]
    assert {*re.findall(r"^\| `(\w+)`", table_of_options, re.MULTILINE)} == SendOptions.__annotations__.keys()
    assert {param.name for param in enqueue.params} >= SendOptions.__annotations__.keys()


@pytest.mark.parametrize("line", re.findall(r"^\| .*$", SECTIONS["To change …, start here"], re.MULTILINE)[1:])
def test_every_name_in_a_row_of_what_to_change_is_in_a_file_of_that_row(line: str) -> None:
    where = line.split(" | ")[1]
    paths = [PACKAGE / path if (PACKAGE / path).exists() else ROOT / path for path in PATHS.findall(where)]
    texts = [path.read_text("utf-8") for path in paths if path.is_file()]
    names = re.findall(r"`(\w+)`", where)
    assert [name for name in names if not any(re.search(rf"\b{name}\b", text) for text in texts)] == []


@pytest.mark.parametrize(("name", "seconds", "path"), [row[:3] for row in table("Times", "Constant")])
def test_a_constant_has_the_value_that_the_page_gives_it(name: str, seconds: str, path: str) -> None:
    module = importlib.import_module("pollconsumer." + path.removesuffix(".py").replace("/", "."))
    assert getattr(module, name) == float(seconds)


def test_every_decision_is_linked_by_its_title() -> None:
    linked = re.findall(r"^- \[([^\n]+)\]\(decisions/([^)]+)\)$", SECTIONS["Why"], re.MULTILINE)
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = [(path.read_text("utf-8").partition("\n")[0].removeprefix("# "), path.name) for path in decisions]
    assert linked == titles


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text, here = (ROOT / page).read_text("utf-8"), (ROOT / page).parent
    named = PATHS.findall(text)
    missing = [path for path in named if not any((at / path).exists() for at in (PACKAGE, ROOT))]
    missing += [link for link in re.findall(r"\]\(([^):]+)\)", text) if not (here / link).exists()]
    missing += [name for name in re.findall(r"\b(\w+)\.lua\b", text) if not _script(name)]
    modules = re.findall(r"python -m ([\w.]+)", text)
    for name in modules:
        module = ROOT / name.replace(".", "/")
        if not (module.with_suffix(".py").exists() or (module / "__main__.py").exists()):
            missing.append(name)
    assert missing == []


def _script(name: str) -> bool:
    return any((PACKAGE / "store" / "lua" / folder / f"{name}.lua").exists() for folder in ("", "parts"))


def test_the_readme_leads_to_both_pages() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "](docs/architecture.md)" in readme
    assert "](CONTRIBUTING.md)" in readme
