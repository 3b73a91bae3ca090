"""Escaping of untrusted text for a terminal, a log or a mail.

Payloads, errors, tracebacks, ids and host names are chosen by anyone who can write to the store, call a producer or
name a file. Unescaped, ESC sequences control the reader's terminal, a line break fakes a line, and direction marks or
invisible characters disguise one. All output for people goes through here.
"""

from __future__ import annotations

INDENT = "  "
_INVISIBLE = {
    *map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0)),
    *map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))),
}
"""Characters without a glyph that ``str.isprintable`` accepts, as letters, marks or symbols."""


def printable(text: str) -> str:
    """``text`` on one line, with characters that are neither visible nor a space escaped as in Python: control
    characters (C0, DEL, C1), line and paragraph separators, direction and format characters, other blanks, unpaired
    surrogates, private and unassigned characters. Idempotent."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() and c not in _INVISIBLE else _escaped(c) for c in text)


def printable_lines(text: str) -> list[str]:
    """The lines of ``text``, escaped and indented, so that none can imitate one of ours.

    Only a line feed breaks a line: other separators are escaped.
    """
    return [f"{INDENT}{printable(line)}".rstrip() for line in text.rstrip("\n").split("\n")]


def counted(number: int, noun: str) -> str:
    """``1 launch``, ``2 launches``."""
    plural = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{plural}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
