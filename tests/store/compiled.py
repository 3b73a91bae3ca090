"""What the functions of a Lua script use of what the language limits, read off the compiled script."""

from __future__ import annotations

import re
from typing import NamedTuple

from lupa.lua51 import LuaRuntime

MOST_UPVALUES, MOST_LOCALS = 60, 200
_INT, _SIZE, _INSTRUCTION, _NUMBER = 7, 8, 9, 10  # in the header: how many bytes each takes
_HEADER_BYTES = 12
_NAMED = re.compile(r"\bfunction (\w+)\(|(\w+) = function\(")
_BOOLEAN, _IS_NUMBER, _TEXT = 1, 3, 4


class Function(NamedTuple):
    """A function, or the script itself: the line where it begins, see tests/store/script.py; the names that it uses of
    what is around it; its most locals at once."""

    name: str
    line: int
    upvalues: int
    locals: int


def functions(code: bytes) -> list[Function]:
    lua = LuaRuntime(encoding="latin-1")
    dump = lua.eval("function(code) return string.dump(assert(loadstring(code))) end")
    text = code.decode("latin-1")
    reader = _Reader(dump(text).encode("latin-1"), text.split("\n"))
    reader.function()
    return reader.found


class _Reader:
    def __init__(self, dumped: bytes, lines: list[str]) -> None:
        self._dumped, self._at, self._lines = dumped, _HEADER_BYTES, lines
        self.found: list[Function] = []

    def function(self) -> None:
        self._skip_text()
        line, _ = self._integer(), self._integer()
        upvalues = self._dumped[self._at]
        self._at += 4
        self._skip(self._integer() * self._dumped[_INSTRUCTION])
        for _ in range(self._integer()):
            self._skip_constant()
        for _ in range(self._integer()):
            self.function()
        self._skip(self._integer() * self._dumped[_INT])
        lives = [self._life() for _ in range(self._integer())]
        for _ in range(self._integer()):
            self._skip_text()
        most = max((sum(begin <= first < end for begin, end in lives) for first, _ in lives), default=0)
        self.found.append(Function(self._name(line), line, upvalues, most))

    def _name(self, line: int) -> str:
        found = line and _NAMED.search(self._lines[line - 1])
        return (found[1] or found[2]) if found else "" if line else "the script itself"

    def _integer(self, width: int = _INT) -> int:
        self._at += self._dumped[width]
        return int.from_bytes(self._dumped[self._at - self._dumped[width] : self._at], "little")

    def _skip(self, size: int) -> None:
        self._at += size

    def _skip_text(self) -> None:
        self._skip(self._integer(_SIZE))

    def _skip_constant(self) -> None:
        kind = self._dumped[self._at]
        self._at += 1 + {_BOOLEAN: 1, _IS_NUMBER: self._dumped[_NUMBER]}.get(kind, 0)
        if kind == _TEXT:
            self._skip_text()

    def _life(self) -> tuple[int, int]:
        """Of a local: its first instruction, and that after its last."""
        self._skip_text()
        return self._integer(), self._integer()
