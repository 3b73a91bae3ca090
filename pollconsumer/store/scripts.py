"""The Lua scripts by name, one file for each operation. A server is sent a script's digest; its text only if needed.

In the header of a file, KEYS lists the words for its keys, and NEEDS the parts that it uses. A part is a file of
functions, placed once before the script, after the parts that it uses itself. A line ``-- PART name`` is replaced by
the text of that part. In a script that needs `once`, the body becomes the function that `once` calls.

A server does not undo a script that fails, so a key of another type must end it before anything has changed. A line
``-- EXPECT keys`` is replaced by a check of these keys."""

from __future__ import annotations

import re
from pathlib import Path

from pollconsumer.core.notation.digests import sha1
from pollconsumer.store.keyspace import QUEUE_KEYS

_DIRECTORY = Path(__file__).parent / "lua"
# Each begins with a literal or a class of characters, to which the search skips: ten times faster than from a boundary.
_HEADER = re.compile(r"-- (KEYS|NEEDS) (.+)\n")
_PART = re.compile(r"-- PART (\w+)\n")
_EXPECT = re.compile(r"-- EXPECT (.+)")
_LOOKS = {"hash": "HLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD"}
_CONSTANTS = re.compile(r"\nlocal ([A-Z][A-Z0-9_]*(?:, [A-Z][A-Z0-9_]*)*) = ([^\n]*?)(?:  --.*)?(?=\n)")
_NAME = re.compile(r"([A-Z][A-Z0-9_]+)\b")

# All other scripts free memory, or need next to none: they must work on a full server.
_MAY_GROW = {"enqueue", "enqueue_new", "checkpoint", "fill", "open_batch"}
# A server whose disk is full carries out only these.
_ONLY_READS = {"rights"}


class Script:
    """A script: the words for its keys, the text that the server loads, and its digest."""

    def __init__(self, name: str, *, shebang: bool) -> None:
        self.keys, self.code = linked(name, shebang=shebang)
        self.sha = sha1(self.code).encode()
        self.is_act = self.keys[-1:] == ("answered",)
        """Whether the script stores its answer, so that a repeated call gets the same answer and changes nothing."""


class Scripts(dict[str, Script]):
    """The scripts by name. Each is read when it is first used, since a launch needs half of them."""

    def __init__(self, *, shebang: bool = True) -> None:
        """``shebang``: False for fakeredis, which does not support script flags."""
        super().__init__()
        self._shebang = shebang
        self._by_sha: dict[bytes, Script] = {}
        self.loads = 0
        """How often a server did not know a script, which cost another round trip each time."""

    def __missing__(self, name: str) -> Script:
        script = self[name] = Script(name, shebang=self._shebang)
        self._by_sha[script.sha] = script
        return script

    def unknown(self, sha: bytes) -> Script:
        """The script with digest ``sha``. Called when a server did not know it."""
        self.loads += 1
        return self._by_sha[sha]


def linked(name: str, *, shebang: bool) -> tuple[tuple[str, ...], bytes]:
    """The words for the keys of a script, and its text with the parts that it needs."""
    source = _whole(name, set())
    keys = tuple(_header(source, "KEYS"))
    flags = " flags=no-writes" if name in _ONLY_READS else "" if name in _MAY_GROW else " flags=allow-oom"
    numbers = (f"KEYS[{number}]" for number in range(1, len(keys) + 1))
    binding = f"local {', '.join(keys)} = {', '.join(numbers)} " if keys else ""
    return keys, ((f"#!lua{flags}\n" if shebang else "") + binding + _inlined(source)).encode()


def source_of(name: str) -> str:
    """The text of one file, with EXPECT lines replaced, and wrapped for `once` if it needs that."""
    source = _EXPECT.sub(_look_at, (_DIRECTORY / f"{name}.lua").read_text("utf-8"))
    return f"return once(function()\n{source}end)\n" if "once" in _header(source, "NEEDS") else source


def _look_at(found: re.Match[str]) -> str:
    return " ".join(f"redis.call('{_LOOKS[QUEUE_KEYS[key].type]}', {key})" for key in found[1].split())


def _whole(name: str, above: set[str]) -> str:
    """The text of a file, preceded by the parts that it needs and ``above`` lacks. Adds these parts to ``above``."""
    source, needed = source_of(name), list[str]()
    for part in _header(source, "NEEDS"):
        if part not in above:
            above.add(part)
            needed.append(_whole(f"parts/{part}", above))
    return "\n".join([*needed, _PART.sub(lambda found: _whole(f"parts/{found[1]}", {*above}), source)])


def _header(source: str, what: str) -> list[str]:
    return [word for kind, words in _HEADER.findall(source) if kind == what for word in words.split()]


def _inlined(code: str) -> str:
    """``code`` with constants replaced by their values: Lua allows two hundred local variables."""
    constants = dict[str, str]()
    for names, values in _CONSTANTS.findall(code):
        constants.update(zip(names.split(", "), values.split(", "), strict=True))
    words = _NAME.split(_CONSTANTS.sub("", code))
    words[1::2] = [constants.get(name, name) for name in words[1::2]]
    return "".join(words)
