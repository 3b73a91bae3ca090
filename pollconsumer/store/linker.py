"""The texts of the Lua scripts, one file per operation, linked with their parts.

A header binds KEYS to words, and names the parts that the script NEEDS. A function may use sixty names of what is
around it. So keys that are RARELY used stand in the text by their numbers.

A line ``-- PART name`` is replaced by the text of that part, which never stands in a loop, since the functions that it
calls are made there. ``-- EXPECT words`` is replaced by a read of each key by a command of its type: Redis does not
roll back a failed script, so a key of another type must end it before anything has changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pollconsumer.store.keyspace import QUEUE_KEYS

_DIRECTORY = Path(__file__).parent / "lua"
# Each begins with a literal or a class of characters, which the search skips to: ten times faster than from a boundary.
_HEADER = re.compile(r"-- (KEYS|NEEDS|RARELY) (.+)\n")
_PART = re.compile(r"-- PART (\w+)(?=\n)")
_EXPECT = re.compile(r"-- EXPECT (.+)")
_CONSTANTS = re.compile(r"\nlocal ([A-Z][A-Z0-9_]*(?:, [A-Z][A-Z0-9_]*)*) = ([^\n]*?)(?:  --.*)?(?=\n)")
_KEY = re.compile(r"', [a-z_]+(?=[,)])")
_WOKEN = re.compile(r"wake\([a-z_]+(?=\))")
_NAME = re.compile(r"([A-Z][A-Z0-9_]+)\b")
_FUNCTION = re.compile(r"\nlocal function (\w+).*?\nend(?=\n)", re.DOTALL)
_BEGIN, _END = "\1", "\2"
_COMMENT = re.compile(r"\n *--(?! (?:KEYS|NEEDS|RARELY|PART|EXPECT) ).*")
_MARK = re.compile(r"-- GUARD .*")
_BLANK = re.compile(r"\n\s*\n")

_SIZE = {"list": "LLEN", "hash": "HLEN", "set": "SCARD", "zset": "ZCARD"}
# All others free memory, or need next to none: they must work on a full server.
_MAY_GROW = {"enqueue", "enqueue_new", "checkpoint", "fill", "open_batch"}
# A server whose disk is full carries out no other ones.
_ONLY_READS = {"rights"}


class Part(NamedTuple):
    """A file of functions: the parts it needs, its constants and theirs, and the pieces of its code, with constants
    inlined: each function under its name, what is between them under none."""

    needed: dict[str, Part]
    constants: dict[str, str]
    pieces: list[tuple[str, str]]


def linked(name: str, *, shebang: bool) -> tuple[tuple[str, ...], bytes]:
    """Words for the keys of the script ``name``, and its text with the parts that it needs."""
    source = expecting(_with_parts(name))
    keys = tuple(_header(source, "KEYS"))
    flags = f"#!lua{_flags(name)}\n" if shebang else ""
    numbers = {word: f"KEYS[{number}]" for number, word in enumerate(keys, 1)}
    rarely = _header(source, "RARELY")
    bound = {word: number for word, number in numbers.items() if word not in rarely}
    binding = f"local {', '.join(bound)} = {', '.join(bound.values())} " if bound else ""
    needed, _, code = _compiled(source)
    placed = _placed([piece for part in needed.values() for piece in part.pieces], code)
    if rarely:
        by_number = {f"{use}{word}": f"{use}{numbers[word]}" for use in ("', ", "wake(") for word in rarely}
        for pattern in (_KEY, _WOKEN):  # a search for either at once takes seven times as long
            placed = pattern.sub(lambda found: by_number.get(found[0], found[0]), placed)
    return keys, (flags + binding + placed).encode()


def _flags(name: str) -> str:
    if name in _ONLY_READS:
        return " flags=no-writes"
    return "" if name in _MAY_GROW else " flags=allow-oom"


def expecting(source: str) -> str:
    """``source`` with the reads of the keys that it expects."""
    return _EXPECT.sub(
        lambda found: " ".join(f"redis.call('{_SIZE[QUEUE_KEYS[word].type]}', {word})" for word in found[1].split()),
        source,
    )


class _Block:
    """A script, or a part that is inserted in it: text and inserted parts, and the functions before it."""

    def __init__(self, outer: _Block | None, text: str) -> None:
        self.outer, self.functions, self.text = outer, "", text
        self.content: list[str | _Block] = [text]

    def __str__(self) -> str:
        return self.functions + "".join(map(str, self.content))

    def add(self, text: str) -> None:
        self.content.append(text)
        self.text += text

    def has(self, call: str) -> bool:
        return call in self.text or call in self.functions

    def is_in_any(self, blocks: Iterable[_Block]) -> bool:
        return self.outer is not None and (self.outer in blocks or self.outer.is_in_any(blocks))


def _placed(pieces: list[tuple[str, str]], marked: str) -> str:
    """The code with its ``pieces``, but for functions that it does not reach. A function that only inserted parts call
    stands at the beginning of each of them, all others before the code: a script makes those of a block whenever it
    enters it, at some 0.3 µs for each function."""
    first, *others = marked.split(_BEGIN)
    block = root = _Block(None, first)
    inner = list[_Block]()
    for other in others:
        text, *after = other.split(_END)
        inner.append(_Block(block, text))
        block.content.append(inner[-1])
        block = inner[-1]
        for text in after:
            block = block.outer or root
            block.add(text)
    for name, text in reversed(pieces):  # a function calls only functions before it
        call = f"{name}("
        if not name or root.has(call):
            root.functions = text + root.functions
        else:
            calling = [block for block in inner if block.has(call)]
            for block in calling:
                if not block.is_in_any(calling):
                    block.functions = text + block.functions
    return str(root)


def _header(source: str, what: str) -> list[str]:
    return [word for kind, words in _HEADER.findall(source) if kind == what for word in words.split()]


def _with_parts(name: str) -> str:
    """A file with the parts that are inserted in it, and in these, between marks."""
    return _PART.sub(lambda found: _BEGIN + _with_parts(f"parts/{found[1]}") + _END, _read(name))


def _read(name: str) -> str:
    """A file without its comments: a launch compiles a dozen scripts, and a third of their text is comments."""
    return _MARK.sub("", _COMMENT.sub("", (_DIRECTORY / f"{name}.lua").read_text("utf-8")))


@cache
def part(name: str) -> Part:
    """The part ``name``, cached: a launch uses a dozen scripts."""
    needed, constants, code = _compiled(_read(f"parts/{name}"))
    pieces, at = list[tuple[str, str]](), 0
    for found in _FUNCTION.finditer(code):
        pieces += [("", code[at : found.start()]), (found[1], found[0])]
        at = found.end()
    return Part(needed, constants, [*pieces, ("", code[at:])])


def _compiled(source: str) -> tuple[dict[str, Part], dict[str, str], str]:
    """The parts that ``source`` needs, its constants and theirs, and its code.

    Constants are replaced by their values, as by a preprocessor. Blank lines are left out, so that a constant changes
    the text, and the digest, of no script that does not use it.

    If they were locals, each function would capture them in every call: those of a step cost 40 µs.
    """
    needed: dict[str, Part] = {}  # each part once, after the parts that it needs
    constants: dict[str, str] = {}
    for name in _header(source, "NEEDS"):
        needed |= part(name).needed
        needed[name] = part(name)
        constants |= part(name).constants
    for names, values in _CONSTANTS.findall(source):
        constants.update(zip(names.split(", "), values.split(", "), strict=True))
    words = _NAME.split(_CONSTANTS.sub("\n", source))
    words[1::2] = [constants.get(name, name) for name in words[1::2]]
    return needed, constants, _BLANK.sub("\n", "".join(words))
