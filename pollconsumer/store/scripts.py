"""The Lua scripts, one file an operation. Its header binds KEYS to words, and names the files of functions it NEEDS.

A line ``-- PART name`` stands for the text of that file.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pollconsumer.store.keyspace import suffix

if TYPE_CHECKING:
    from collections.abc import Callable

_DIRECTORY = Path(__file__).parent / "lua"
_HEADER = re.compile(r"^-- (KEYS|NEEDS) (.+)$", re.MULTILINE)

_PART = re.compile(r"^-- PART (\w+)$", re.MULTILINE)
_CONSTANTS = re.compile(r"^local ([A-Z][A-Z0-9_]*(?:, [A-Z][A-Z0-9_]*)*) = ([^\n]*?)(?:  --.*)?\n", re.MULTILINE)

_NAMES = re.compile(r"--[^\n]*|'(?:\\.|[^'\\])*'|\b[A-Z][A-Z0-9_]+\b")

# All others free memory, move it about, or need next to none: they must work on a full server.
_MAY_GROW = {"enqueue", "checkpoint"}


class Script:
    """An operation of the store."""

    def __init__(self, name: str, source_of: Callable[[str], str], *, shebang: bool) -> None:
        source = _PART.sub(lambda part: source_of(f"parts/{part[1]}"), source_of(name))
        self.keys = tuple(_header(source, "KEYS"))
        """Words for the keys; ``...`` before the last says that it takes all that are left."""
        if not self.keys:
            raise AssertionError(f"{name}.lua does not name its KEYS")
        flags = ("#!lua\n" if name in _MAY_GROW else "#!lua flags=allow-oom\n") if shebang else ""
        parts: dict[str, str] = {}
        _collect(source, source_of, parts)
        self.code = (flags + self._binding() + _inlined("".join(parts.values()) + source)).encode()
        self.sha = hashlib.sha1(self.code, usedforsecurity=False).hexdigest().encode()
        self._suffixes: tuple[str, ...] | None = None

    @property
    def suffixes(self) -> tuple[str, ...]:
        """What is stored for its words, where all of them are keys of a queue."""
        if self._suffixes is None:
            self._suffixes = tuple(map(suffix, self.keys))
        return self._suffixes

    def _binding(self) -> str:
        single = self.keys[: self.keys.index("...")] if "..." in self.keys else self.keys
        names = ", ".join(single)
        binding = f"local {names} = {', '.join(f'KEYS[{i}]' for i in range(1, len(single) + 1))} "
        if len(single) < len(self.keys):
            binding += f"local {self.keys[-1]} = {{unpack(KEYS, {len(single) + 1})}} "
        return binding


class Scripts:
    """Every script by name, read when it is first used: a launch needs half of them.

    ``shebang`` is off for fakeredis, which does not read the line that carries a script's flags.
    """

    def __init__(self, *, shebang: bool = True) -> None:
        self._shebang = shebang
        self._read: dict[str, Script] = {}
        self._sources: dict[str, str] = {}

    def __getitem__(self, name: str) -> Script:
        script = self._read.get(name)
        if script is None:
            script = self._read[name] = Script(name, self._source, shebang=self._shebang)
        return script

    def _source(self, name: str) -> str:
        source = self._sources.get(name)
        if source is None:
            source = self._sources[name] = (_DIRECTORY / f"{name}.lua").read_text("utf-8")
        return source

    def known(self) -> list[Script]:
        """The scripts in use so far."""
        return list(self._read.values())


def _header(source: str, what: str) -> list[str]:
    return [word for kind, words in _HEADER.findall(source) if kind == what for word in words.split()]


def _collect(source: str, source_of: Callable[[str], str], parts: dict[str, str]) -> None:
    """What a source needs, each part once and after those that it needs itself."""
    for name in _header(source, "NEEDS"):
        if name not in parts:
            part = source_of(f"parts/{name}")
            _collect(part, source_of, parts)
            parts[name] = part


def _inlined(code: str) -> str:
    """With the values of constants in place of their names, as a preprocessor would.

    Each function of a script captures the locals that it uses, in every call: those of a step cost 40 µs.
    """
    values: dict[str, str] = {}
    for names, constants in _CONSTANTS.findall(code):
        values.update(zip(names.split(", "), constants.split(", "), strict=True))
    return _NAMES.sub(lambda name: values.get(name[0], name[0]), _CONSTANTS.sub("\n", code))
