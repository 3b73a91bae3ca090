"""Escaping of untrusted text for a terminal, a log or a mail.

Anyone who can write to the store, call a producer or name a file chooses payloads, errors, tracebacks, ids and host
names. Unescaped, ESC sequences control the reader's terminal, a line break fakes a line, and direction marks or
invisible characters disguise one. All output for people goes through this module."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

INDENT = "  "
_INVISIBLE = {
    *map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0)),
    *map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))),
}
"""Invisible characters that ``str.isprintable`` accepts because they count as letters, marks or symbols."""
HIDDEN = "***"
# Compiled when they are first used: most launches print no URL.
_USERINFO = r"(?s)(.*?://)?.*@"
_SECRET_OPTION = r"(?i)([?&][^=&]*(?:pass|secret|token)[^=&]*=)[^&]*"
_HOSTS = r"[\w.-]+(:[0-9]{1,5})?(,[\w.-]+(:[0-9]{1,5})?)*"
_AUTHORITY = r"(?s)(.*?://(?:\[[^]]*]|[^:/?#@]*):)(([^/?#]*).*)"
ADDRESS = r"https?://[^\s/?#]+[^\s]*"


def is_text(text: str) -> bool:
    """Whether ``text`` can be encoded as UTF-8: it has no lone surrogates, which stand for undecodable bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """``text`` on one line. Characters that are neither visible nor a space are escaped as in Python: control
    characters (C0, DEL, C1), line and paragraph separators, direction and format characters, other blanks, unpaired
    surrogates, private and unassigned characters. Idempotent."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c.isprintable() and c not in _INVISIBLE else c.encode("unicode_escape").decode("ascii") for c in text
    )


def printable_lines(text: str) -> list[str]:
    """The lines of ``text``, escaped and indented, so that no line can imitate a line of the program.

    Only a line feed breaks a line. Other separators are escaped."""
    return [f"{INDENT}{printable(line)}".rstrip() for line in text.rstrip("\n").split("\n")]


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 launch``, ``2 launches``."""
    plural = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{plural}"


def redacted(url: str) -> str:
    """``url``, or a text that has one, with its user, its password and secret options hidden.

    It also handles malformed URLs: a password may contain ``@``, ``/`` or ``#``; in a URL without a host the password
    stands where the port should be. If in doubt, it hides a part."""
    url = re.sub(_SECRET_OPTION, rf"\1{HIDDEN}", url)
    if "@" in url:
        return re.sub(_USERINFO, lambda found: f"{found[1] or ''}{HIDDEN}@", url, count=1)
    authority = re.match(_AUTHORITY, url)
    if authority and not _is_port(authority[3]):
        return authority[1] + HIDDEN
    return url


def site_of(url: str) -> str:
    """Scheme and host of ``url``. The path is left out, since it may be a secret, as in a monitor's URL."""
    scheme, separator, rest = url.partition("://")
    host = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{host}/{HIDDEN}" if separator and host else HIDDEN


def _is_port(text: str) -> bool:
    """Whether ``text`` is a port, or a port and further hosts after a comma."""
    text, _, others = text.partition(",")
    listed = not others or re.fullmatch(_HOSTS, others)
    return bool(listed) and text.isdecimal() and text.isascii() and len(text) <= 5 and 1 <= int(text) <= 65535


def check_address(url: object) -> str:
    """``url``, if it is a valid http or https URL with a host, as a monitor has it; else ValueError. The error does not
    show ``url``, which may be secret."""
    # Compiled when a URL is checked: most launches import this module, and have no URL.
    if not isinstance(url, str) or not (url.isascii() and url.isprintable() and re.fullmatch(ADDRESS, url)):
        raise ValueError("write https://HOST/…, without spaces")
    try:
        parts = urlsplit(url)
        known = bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise ValueError("its host or port is not valid: write https://HOST/… or https://HOST:PORT/…")
    return url
