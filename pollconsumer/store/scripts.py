"""The Lua scripts, one file per operation. A header binds KEYS to words, and names the parts that the script NEEDS.

A line ``-- PART name`` is replaced by the text of that part.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pollconsumer.store.keyspace import QUEUE_KEYS

_DIRECTORY = Path(__file__).parent / "lua"
# Each begins with a literal or a class of characters, which the search skips to: ten times faster than from a boundary.
_HEADER = re.compile(r"-- (KEYS|NEEDS) (.+)\n")
_PART = re.compile(r"-- PART (\w+)(?=\n)")
_CONSTANTS = re.compile(r"\nlocal ([A-Z][A-Z0-9_]*(?:, [A-Z][A-Z0-9_]*)*) = ([^\n]*?)(?:  --.*)?(?=\n)")
_NAME = re.compile(r"([A-Z][A-Z0-9_]+)\b")

# All others free memory, or need next to none: they must work on a full server.
_MAY_GROW = {"enqueue", "checkpoint"}


class Part(NamedTuple):
    """A file of functions: the parts it needs, its constants, and its code with constants inlined."""

    needs: list[str]
    constants: dict[str, str]
    code: str


class Script:
    """An operation of the store."""

    def __init__(self, name: str, part: Callable[[str], Part], *, shebang: bool) -> None:
        source = _PART.sub(lambda found: _read(f"parts/{found[1]}"), _read(name))
        self.keys = tuple(_header(source, "KEYS"))
        """Words for the keys; ``...`` before the last: it takes all the rest."""
        if not self.keys:
            raise AssertionError(f"{name}.lua does not name its KEYS")
        flags = ("#!lua\n" if name in _MAY_GROW else "#!lua flags=allow-oom\n") if shebang else ""
        parts: dict[str, Part] = {}
        _collect(_header(source, "NEEDS"), part, parts)
        functions = "".join(each.code for each in parts.values())
        self.code = (flags + self._binding() + functions + _inlined(source, _constants(source, parts))).encode()
        self.sha = hashlib.sha1(self.code, usedforsecurity=False).hexdigest().encode()

    @cached_property
    def suffixes(self) -> tuple[str, ...]:
        """The stored suffixes of its words, if all are keys of a queue."""
        return tuple(QUEUE_KEYS[name].suffix for name in self.keys)

    def _binding(self) -> str:
        single = self.keys[: self.keys.index("...")] if "..." in self.keys else self.keys
        names = ", ".join(single)
        binding = f"local {names} = {', '.join(f'KEYS[{i}]' for i in range(1, len(single) + 1))} "
        if len(single) < len(self.keys):
            binding += f"local {self.keys[-1]} = {{unpack(KEYS, {len(single) + 1})}} "
        return binding


class Scripts:
    """Every script by name, loaded lazily: a launch needs half of them.

    ``shebang`` is off for fakeredis, which does not support script flags.
    """

    def __init__(self, *, shebang: bool = True) -> None:
        self._shebang = shebang
        self._read: dict[str, Script] = {}
        self._parts: dict[str, Part] = {}

    def __getitem__(self, name: str) -> Script:
        script = self._read.get(name)
        if script is None:
            script = self._read[name] = Script(name, self._part, shebang=self._shebang)
        return script

    def _part(self, name: str) -> Part:
        """Cached: a launch uses a dozen scripts."""
        part = self._parts.get(name)
        if part is None:
            source, needed = _read(f"parts/{name}"), dict[str, Part]()
            needs = _header(source, "NEEDS")
            _collect(needs, self._part, needed)
            constants = _constants(source, needed)
            part = self._parts[name] = Part(needs, constants, _inlined(source, constants))
        return part

    def known(self) -> list[Script]:
        """The scripts in use so far."""
        return list(self._read.values())


def _header(source: str, what: str) -> list[str]:
    return [word for kind, words in _HEADER.findall(source) if kind == what for word in words.split()]


def _read(name: str) -> str:
    return (_DIRECTORY / f"{name}.lua").read_text("utf-8")


def _collect(needs: list[str], part: Callable[[str], Part], parts: dict[str, Part]) -> None:
    """Each part once, after its own dependencies."""
    for name in needs:
        if name not in parts:
            _collect(part(name).needs, part, parts)
            parts[name] = part(name)


def _constants(source: str, parts: dict[str, Part]) -> dict[str, str]:
    """Constants of a source and of its parts, with their values."""
    constants: dict[str, str] = {}
    for part in parts.values():
        constants |= part.constants
    for names, values in _CONSTANTS.findall(source):
        constants.update(zip(names.split(", "), values.split(", "), strict=True))
    return constants


def _inlined(source: str, constants: dict[str, str]) -> str:
    """``source`` with constants replaced by their values, as a preprocessor would.

    As locals, each function would capture them in every call: those of a step cost 40 µs.
    """
    words = _NAME.split(_CONSTANTS.sub("\n", source))
    words[1::2] = [constants.get(name, name) for name in words[1::2]]
    return "".join(words)
