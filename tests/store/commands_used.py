"""Which commands each script sends, and the Python of the store beside them: read off the sources."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pollconsumer

PACKAGE = Path(pollconsumer.__file__).parent
LUA = PACKAGE / "store" / "lua"
_CALL = re.compile(r"(?:redis\.call|expect)\('([A-Z]+)'")
_FUNCTION = re.compile(r"^local function (\w+)\(.*?^end$", re.MULTILINE | re.DOTALL)
_PLAIN = re.compile(r"""(?:[\[(]\s*|= |else )"([A-Z]{3,})"(?:[,)]| if )""")


def scripts() -> set[str]:
    return {path.stem for path in LUA.glob("*.lua")}


@cache
def commands_of(script: str) -> frozenset[str]:
    """Those of a script, and of the functions of its parts that it calls."""
    parts = "".join(path.read_text("utf-8") for path in (LUA / "parts").glob("*.lua"))
    functions = {found[1]: found[0] for found in _FUNCTION.finditer(parts)}
    text = (LUA / f"{script}.lua").read_text("utf-8")
    inserted = [
        (LUA / "parts" / f"{part}.lua").read_text("utf-8")
        for part in re.findall(r"^-- PART (\w+)$", text, re.MULTILINE)
    ]
    pending, looked_at = [text, *inserted], set[str]()
    commands: set[str] = set()
    while pending:
        text = re.sub(r"--.*", "", pending.pop())
        commands.update(_CALL.findall(text))
        called = (functions.keys() & set(re.findall(r"\b(\w+)\(", text))) - looked_at
        looked_at |= called
        pending += [functions[name] for name in called]
    return frozenset(commands)


def plain_commands(layer: str = "store") -> set[str]:
    """Those that Python sends itself, beside what the connection does with scripts."""
    return {
        name
        for path in (PACKAGE / layer).rglob("*.py")
        if path.name != "wire.py"
        for name in _PLAIN.findall(path.read_text("utf-8"))
    }
