"""The Lua scripts by name. A server is sent the digest of one, and its text where it does not know that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from pollconsumer.core.notation.digests import sha1
from pollconsumer.store.keyspace import QUEUE_KEYS

_DIRECTORY = Path(__file__).parent / "lua"
_LINKING = ("linker.py", "keyspace.py")
Known = tuple[tuple[str, ...], bytes]
"""What a call needs to know of a script: words for its keys, and the digest of its text."""


class Script:
    """An operation of the store."""

    def __init__(self, name: str, *, shebang: bool, known: Known | None = None) -> None:
        self._name, self._shebang = name, shebang
        self.keys, self.sha = known or (self._linked[0], _digest(self.code))
        self.is_act = self.keys[-1:] == ("answered",)
        """Whether a repetition of a call is answered as its first attempt was."""

    @cached_property
    def _linked(self) -> tuple[tuple[str, ...], bytes]:
        from pollconsumer.store.linker import linked  # a launch whose server knows its scripts needs no text

        return linked(self._name, shebang=self._shebang)

    @property
    def code(self) -> bytes:
        """The text that a server loads."""
        return self._linked[1]

    @cached_property
    def suffixes(self) -> tuple[str, ...]:
        """The stored suffixes of its words, if all are keys of a queue."""
        return tuple(QUEUE_KEYS[name].suffix for name in self.keys)


class Scripts(dict[str, Script]):
    """Every script by name, made lazily: a launch needs half of them."""

    def __init__(self, known: Mapping[str, Known] | None = None, *, shebang: bool = True) -> None:
        """``known`` by `all_known`; the others are linked. ``shebang`` is off for fakeredis, which does not support
        script flags."""
        super().__init__()
        self._known, self._shebang = known or {}, shebang
        self._by_sha: dict[bytes, Script] = {}
        self.loads = 0
        """How often a server did not know a script, which took another round trip."""

    def __missing__(self, name: str) -> Script:
        script = self[name] = Script(name, shebang=self._shebang, known=self._known.get(name))
        self._by_sha[script.sha] = script
        return script

    def unknown(self, sha: bytes) -> Script:
        """The script that a server did not know by ``sha``. It has the digest of its text from then on."""
        self.loads += 1
        script = self._by_sha[sha]
        script.sha = _digest(script.code)
        self._by_sha[script.sha] = script
        return script


def _digest(code: bytes) -> bytes:
    return sha1(code).encode()


def all_known() -> dict[str, Known]:
    """What a call needs to know of every script, by name: to find it out takes as long as linking all of them."""
    scripts = Scripts()
    return {path.stem: (scripts[path.stem].keys, scripts[path.stem].sha) for path in _DIRECTORY.glob("*.lua")}


def sources() -> list[Path | os.DirEntry[str]]:
    """The files that the texts are made of. OSError if they cannot be listed."""
    found = [entry for place in (_DIRECTORY, _DIRECTORY / "parts") for entry in os.scandir(place) if entry.is_file()]
    return [*found, *(_DIRECTORY.with_name(name) for name in _LINKING)]
