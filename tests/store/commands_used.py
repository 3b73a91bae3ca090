"""Which commands each script sends, and the Python of the store beside them: read off the sources."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pollconsumer
from pollconsumer.store.scripts import Scripts, source_of

PACKAGE = Path(pollconsumer.__file__).parent
LUA = PACKAGE / "store" / "lua"
SENDERS = ("store", "moving", "watching", "dashboard/readings")
"""Where Python sends commands itself."""
_CALL = re.compile(r"redis\.call(?:\(|, )'([A-Z]+)'")
_READS = (
    "EXISTS|GET|HEXISTS|HGET|HGETALL|HLEN|HMGET|HSCAN|HVALS|LINDEX|LLEN|LPOS|LRANGE|PTTL|SCARD|SISMEMBER|SMISMEMBER|"
    "SRANDMEMBER|TIME|TYPE|ZCARD|ZCOUNT|ZRANGE|ZRANGEBYLEX|ZRANGEBYSCORE|ZSCORE"
)
_WRITTEN = re.compile(rf"(?:redis\.call(?:\(|, )'(?!(?:{_READS})')[A-Z]+', |\bwake\()(\w+)")
_RENAMED_TO = re.compile(r"redis\.call\('RENAME', \w+, (\w+)")
_EACH_OF = re.compile(r"for _, (\w+) in ipairs\(\{([\w, ]+)\}\)")
_FUNCTION = re.compile(r"^local function (\w+)\(.*?^end$", re.MULTILINE | re.DOTALL)
_PLAIN = re.compile(r"""(?:[\[(]\s*|= |else )"([A-Z]{3,})"(?:[,)]| if )""")


def scripts() -> set[str]:
    return {path.stem for path in LUA.glob("*.lua")}


@cache
def code_of(script: str) -> str:
    """A script, the parts that are inserted in it, and the functions of parts that any of these call; no comments."""
    parts = "".join(source_of(f"parts/{path.stem}") for path in (LUA / "parts").glob("*.lua"))
    functions = {found[1]: found[0] for found in _FUNCTION.finditer(parts)}
    pending, looked_at = [source_of(script)], set[str]()
    code = ""
    while pending:
        text = pending.pop()
        inserted = re.findall(r"^-- PART (\w+)$", text, re.MULTILINE)
        pending += [source_of(f"parts/{part}") for part in inserted]
        text = re.sub(r"--.*", "", text)
        code += text + "\n"
        called = (functions.keys() & set(re.findall(r"\b(\w+)\(", text))) - looked_at
        looked_at |= called
        pending += [functions[name] for name in called]
    return code


def commands_of(script: str) -> frozenset[str]:
    return frozenset(_CALL.findall(code_of(script)))


def keys_written_by(script: str) -> set[str]:
    """The words of its header for them."""
    code = code_of(script)
    words = {*_WRITTEN.findall(code), *_RENAMED_TO.findall(code)} - {"marker", "slots", "KEYS", "target"}
    for variable, listed in _EACH_OF.findall(code):
        if variable in words:
            words = words - {variable} | set(listed.split(", "))
    unknown = words - set(Scripts()[script].keys)
    assert not unknown, f"{script}.lua writes to {unknown}, which its header does not name"
    return words


def plain_commands() -> set[str]:
    """Those that Python sends itself, except for what the connection does with scripts."""
    found = {
        name
        for place in SENDERS
        for path in (PACKAGE / place).rglob("*.py")
        if path.name != "replies.py"
        for name in _PLAIN.findall(path.read_text("utf-8"))
    }
    return found - {"SCRIPT", "NOSCRIPT", "NOAUTH"}  # of scripts; and what servers answer
