"""The Lua scripts, one file per operation. A header binds KEYS to words, and names the parts that the script NEEDS.

A line ``-- PART name`` is replaced by the text of that part, ``-- EXPECT words`` by a read of each key by a command of
its type: Redis does not roll back a failed script, so a key of another type must end it before anything has changed.
"""

from __future__ import annotations

import re
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from pollconsumer.core.notation.digests import sha1
from pollconsumer.store.keyspace import QUEUE_KEYS

_DIRECTORY = Path(__file__).parent / "lua"
# Each begins with a literal or a class of characters, which the search skips to: ten times faster than from a boundary.
_HEADER = re.compile(r"-- (KEYS|NEEDS) (.+)\n")
_PART = re.compile(r"-- PART (\w+)(?=\n)")
_EXPECT = re.compile(r"-- EXPECT (.+)")
_CONSTANTS = re.compile(r"\nlocal ([A-Z][A-Z0-9_]*(?:, [A-Z][A-Z0-9_]*)*) = ([^\n]*?)(?:  --.*)?(?=\n)")
_NAME = re.compile(r"([A-Z][A-Z0-9_]+)\b")
_FUNCTION = re.compile(r"\nlocal function (\w+).*?\nend(?=\n)", re.DOTALL)

_SIZE = {"list": "LLEN", "hash": "HLEN", "zset": "ZCARD"}
# All others free memory, or need next to none: they must work on a full server.
_MAY_GROW = {"enqueue", "enqueue_new", "checkpoint"}


class Part(NamedTuple):
    """A file of functions: the parts it needs, its constants and theirs, and its code with constants inlined."""

    needed: dict[str, Part]
    constants: dict[str, str]
    code: str


class Script:
    """An operation of the store."""

    def __init__(self, name: str, *, shebang: bool) -> None:
        source = expecting(_PART.sub(lambda found: _read(f"parts/{found[1]}"), _read(name)))
        self.keys = tuple(_header(source, "KEYS"))
        """Words for the keys."""
        flags = ("#!lua\n" if name in _MAY_GROW else "#!lua flags=allow-oom\n") if shebang else ""
        binding = f"local {', '.join(self.keys)} = {', '.join(f'KEYS[{i + 1}]' for i in range(len(self.keys)))} "
        needed, _, code = _compiled(source)
        self.code = (flags + binding + _called("".join(part.code for part in needed.values()), code) + code).encode()
        self.sha = sha1(self.code).encode()

    @cached_property
    def suffixes(self) -> tuple[str, ...]:
        """The stored suffixes of its words, if all are keys of a queue."""
        return tuple(QUEUE_KEYS[name].suffix for name in self.keys)


class Scripts(dict[str, Script]):
    """Every script by name, loaded lazily: a launch needs half of them.

    ``shebang`` is off for fakeredis, which does not support script flags.
    """

    def __init__(self, *, shebang: bool = True) -> None:
        super().__init__()
        self._shebang = shebang

    def __missing__(self, name: str) -> Script:
        script = self[name] = Script(name, shebang=self._shebang)
        return script


def expecting(source: str) -> str:
    """``source`` with the reads of the keys that it expects."""
    return _EXPECT.sub(
        lambda found: " ".join(f"redis.call('{_SIZE[QUEUE_KEYS[word].type]}', {word})" for word in found[1].split()),
        source,
    )


def _called(functions: str, code: str) -> str:
    """``functions`` without those that ``code`` does not reach: a script makes each of its functions in every call."""
    for found in reversed([*_FUNCTION.finditer(functions)]):  # each calls only those before it
        if f"{found[1]}(" not in functions[found.end() :] and f"{found[1]}(" not in code:
            functions = functions[: found.start()] + functions[found.end() :]
    return functions


def _header(source: str, what: str) -> list[str]:
    return [word for kind, words in _HEADER.findall(source) if kind == what for word in words.split()]


def _read(name: str) -> str:
    return (_DIRECTORY / f"{name}.lua").read_text("utf-8")


@cache
def part(name: str) -> Part:
    """Cached: a launch uses a dozen scripts."""
    return _compiled(_read(f"parts/{name}"))


def _compiled(source: str) -> Part:
    """Constants are replaced by their values, as by a preprocessor.

    As locals, each function would capture them in every call: those of a step cost 40 µs.
    """
    needed: dict[str, Part] = {}  # each once, after its own
    constants: dict[str, str] = {}
    for name in _header(source, "NEEDS"):
        needed |= part(name).needed
        needed[name] = part(name)
        constants |= part(name).constants
    for names, values in _CONSTANTS.findall(source):
        constants.update(zip(names.split(", "), values.split(", "), strict=True))
    words = _NAME.split(_CONSTANTS.sub("\n", source))
    words[1::2] = [constants.get(name, name) for name in words[1::2]]
    return Part(needed, constants, "".join(words))
