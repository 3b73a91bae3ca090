"""docs/reference/glossary.md has the words of the public names, each once, and no word that nobody meets.

Public names are what docs/reference lists: commands, options, settings, `--json` fields, classes, functions,
parameters. A word of a command or a class needs its meaning. So does a word of four names or more. Ordinary words have
none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compatibility.promised_lines import promised_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DOCS = Path(__file__).parents[1] / "docs"
GLOSSARY = (DOCS / "reference" / "glossary.md").read_text("utf-8")
PAGES = [page.read_text("utf-8") for page in (*DOCS.glob("*.md"), DOCS / "reference" / "compatibility.md")]
NAMES_OF_A_WORD = 4
"""From this number of names on a word is one of the project's vocabulary."""
ORDINARY = """
add adopt async at audit backup bad before break by cancel cancelled check child completed configuration conflict
context
dashboard data died doctor duration empty enqueue error exit export failed fatal findings for found full history
held id idle import in init large last limit list log many max memory metrics name next no not offset on outcome
partial path pause per platform policy poll previous process purge put ready refused remove reopen replicated
reschedule result resume retry run seconds show since skip start state status stop timeout timestamps to too
trigger unknown
unreachable until usage wait work yield
"""
"""What everybody reads at once: English, and words that mean here what they mean in every program."""


def words_of(glossary: str) -> list[str]:
    rows: list[str] = re.findall(r"^\| ([^|]+?) \|", glossary, re.MULTILINE)
    return [word for word in rows if word != "Word"]


def stem(word: str) -> str:
    """The same for `launch` and `launches`, for `expiry`, `expires` and `expired`."""
    return re.sub(r"(?:ation|ion|er|ing|en|ed|e|y|r|d)$", "", word.removesuffix("s"))


def parts(name: str) -> Iterator[str]:
    yield from (part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))


def public_names() -> Iterator[str]:
    """``launches`` for a command, ``--ago`` for an option, ``Batch`` or ``Batch.wait`` for names of the API …"""
    for kind, _, line in (line.partition(" ") for line in promised_lines("")):
        named, _, more = line.partition(": ")
        if kind == "command":
            yield from named.split()[1:]
        elif kind == "option":
            yield from re.findall(r" --([\w-]+)$", line)
        elif kind == "setting":
            yield from re.findall(r"\b[a-z_]+\b", named)
        elif kind == "name" and not line.endswith(" is required"):
            yield from re.findall(r"\w+$", named)
            yield from re.findall(r"^\**(\w+)", more)
        elif kind == "json" and " is " not in line:
            yield from re.findall(r"^[\w.]+$", more)


def commands_and_classes() -> Iterator[str]:
    for kind, _, name in (line.partition(" ") for line in promised_lines("")):
        if kind == "command":
            yield from name.split()[1:]
        elif kind == "name":
            yield from re.findall(r"^[A-Z]\w+$", name)


def needed(names: Iterable[str], always: Iterable[str]) -> set[str]:
    """The words that need their meaning, each in one of its forms."""
    named: defaultdict[str, set[str]] = defaultdict(set)
    forms: dict[str, str] = {}
    for name in sorted(names):
        for part in parts(name):
            named[stem(part)].add(name)
            forms.setdefault(stem(part), part)
    shown = {stem(part) for name in always for part in parts(name)}
    return {forms[root] for root, of in named.items() if root in shown or len(of) >= NAMES_OF_A_WORD}


def without_meaning(glossary: str) -> list[str]:
    known = {stem(part) for word in (*words_of(glossary), *ORDINARY.split()) for part in parts(word)}
    return sorted(word for word in needed({*public_names()}, commands_and_classes()) if stem(word) not in known)


def unused(glossary: str) -> list[str]:
    """The words of ``glossary`` that are in no public name and on fewer than two pages."""
    named = {stem(part) for name in public_names() for part in parts(name)}
    return [
        word for word in words_of(glossary) if not named.issuperset(map(stem, parts(word))) and pages_with(word) < 2
    ]


def pages_with(word: str) -> int:
    return sum(re.search(rf"\b{stem(word)}", page, re.IGNORECASE) is not None for page in PAGES)


def test_the_glossary_has_sixty_words_at_most_each_once() -> None:
    words = words_of(GLOSSARY)
    assert len(words) == len({*words})
    assert 50 < len(words) <= 60


def test_each_word_of_the_public_names_has_its_meaning_or_is_ordinary() -> None:
    assert without_meaning(GLOSSARY) == []


@pytest.mark.parametrize("word", ["batch", "draft", "lease", "mover", "redrive"])
def test_a_word_that_the_glossary_leaves_out_is_found(word: str) -> None:
    rest = re.sub(rf"^\| {word} \|.*\n", "", GLOSSARY, flags=re.MULTILINE)
    assert [stem(found) for found in without_meaning(rest)] == [stem(word)]


def test_an_ordinary_word_is_in_the_public_names_and_not_in_the_glossary() -> None:
    roots = {stem(word) for word in needed({*public_names()}, commands_and_classes())}
    explained = {stem(part) for word in words_of(GLOSSARY) for part in parts(word)}
    assert sorted(word for word in ORDINARY.split() if stem(word) not in roots - explained) == []


def test_each_word_of_the_glossary_is_in_a_public_name_or_on_two_pages() -> None:
    assert unused(GLOSSARY) == []
    assert unused(f"{GLOSSARY}| tenure | how long a lease is held |\n") == ["tenure"]
