"""docs/architecture.md says what the code does: its tables, its picture of a message's life, its quoted loop.

So do docs/reference/internals.md, whose words are not those of docs/reference/glossary.md, and docs/messages.md: its
states and options. Each decision begins with what holds today, and the index of the decisions leads to every page of
them.
"""

from __future__ import annotations

import inspect
import re
import textwrap

import pytest

from pollconsumer.core.lifecycle import State, Timestamps
from pollconsumer.interface.cli.messages.enqueue import enqueue
from pollconsumer.runtime.consumer import Consumer
from pollconsumer.runtime.new_messages import SendOptions
from tests import house
from tests.store.commands_used import PACKAGE

ROOT = PACKAGE.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
INTERNALS = (ROOT / "docs" / "reference" / "internals.md").read_text("utf-8")
PATHS = re.compile(r"`((?:\w+/)+(?:\w+\.(?:py|lua))?)`")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", f"{PAGE}\n{INTERNALS}", re.MULTILINE | re.DOTALL))
GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text("utf-8") + SECTIONS["Words of the code"]
WHERE = ("A timeout: where it comes from, who enforces it", "To change …, start here")
"""Sections with a table whose rows name files, and what is in them."""
PAGES_OF_DECISIONS = {path.name: path.read_text("utf-8") for path in (ROOT / "docs" / "decisions").glob("*.md")}
DECISIONS = {
    f'docs/decisions/{name}, "{title}"': text
    for name, page in sorted(PAGES_OF_DECISIONS.items())
    for title, text in re.findall(r"^## ([^\n]+)\n\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
}
"""By what the code calls a decision."""


def table(section: str, first: str) -> list[list[str]]:
    """The rows of the table in a section whose first column is called ``first``, without their backticks."""
    _, _, rest = SECTIONS[section].partition(f"| {first} |")
    lines = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_every_layer_and_wing_is_in_the_tree() -> None:
    tree = SECTIONS["Layers and optional packages"].split("```")[1].partition("pollconsumer/")[2]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == {*re.findall(r"([a-z_]+)/", tree)}


def test_each_word_of_the_glossary_stands_there_once() -> None:
    words = [word for row in re.findall(r"^\| ([a-z][^|]*) \|", GLOSSARY, re.MULTILINE) for word in row.split(", ")]
    assert sorted({*words}) == sorted(words)


@pytest.mark.crossing
def test_the_words_of_the_hot_path_are_in_the_glossary() -> None:
    words = re.findall(r"(?:^\| |`)(\w+)", GLOSSARY, re.MULTILINE)
    known = {word.lower().removesuffix("s") for word in words}
    said = {name: {word.removesuffix("s") for word in house.words_of(name)} for name in house.classes_of_a_message()}
    assert {name: words - known for name, words in said.items() if words - known} == {}


@pytest.mark.crossing
@pytest.mark.parametrize(
    ("step", "by"), [("enqueue", "enqueue"), ("reserve", "handle"), ("handle", "handle"), ("settle", "handle")]
)
def test_a_message_enters_each_file_of_its_way(step: str, by: str) -> None:
    ways = {name: re.findall(r"(?:\w+/)+\w+\.py", files) for name, files in table("A message's way", "Step")}
    entered = {file.partition("/pollconsumer/")[2] for file, _ in house.entered_by_a_message()[by]}
    assert len(ways[step]) > 1
    assert {*ways[step]} - entered == set()


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
    callbacks = {"then", "failed"}  # of a batch, on the command line
    assert {param.name for param in enqueue.params} >= SendOptions.__annotations__.keys() - callbacks


@pytest.mark.parametrize(
    "line", [line for title in WHERE for line in re.findall(r"^\| .*$", SECTIONS[title], re.MULTILINE)[1:]]
)
def test_every_name_in_a_row_is_in_a_file_of_that_row(line: str) -> None:
    _, _, where = line.partition(" | ")
    paths = [PACKAGE / path if (PACKAGE / path).exists() else ROOT / path for path in PATHS.findall(where)]
    texts = [path.read_text("utf-8") for path in paths if path.is_file()]
    names = re.findall(r"`(\w+)`", where)
    assert [name for name in names if not any(re.search(rf"\b{name}\b", text) for text in texts)] == []


@pytest.mark.parametrize("decision", DECISIONS.values(), ids=DECISIONS)
def test_a_decision_begins_with_what_holds_today_in_three_sentences_at_most(decision: str) -> None:
    holds = decision.split("\n\n")[0].strip()
    assert holds.startswith("**Holds today:** ")
    assert len(re.findall(r"[.?!](?=\s|$)", holds)) <= 3


def test_the_index_of_the_decisions_leads_to_every_page_of_them() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", PAGES_OF_DECISIONS["index.md"])
    assert sorted(listed) == sorted(PAGES_OF_DECISIONS.keys() - {"index.md"})


def test_each_decision_that_contributing_or_the_code_names_is_there() -> None:
    files = [ROOT / "CONTRIBUTING.md", *PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.lua")]
    named = {
        name for path in files for name in re.findall(r'docs/decisions/[\w-]+\.md, "[^"]+"', path.read_text("utf-8"))
    }
    assert named
    assert named - DECISIONS.keys() == set()


@pytest.mark.parametrize(
    "page",
    [
        *("docs/architecture.md", "docs/reference/internals.md", "docs/reference/keyspace.md"),
        *("CONTRIBUTING.md", "tests/README.md"),
    ],
)
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text, here = (ROOT / page).read_text("utf-8"), (ROOT / page).parent
    named = PATHS.findall(text)
    missing = [path for path in named if not any((at / path).exists() for at in (PACKAGE, ROOT))]
    missing += [link for link in re.findall(r"\]\(([^):#]+)[)#]", text) if not (here / link).exists()]
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
