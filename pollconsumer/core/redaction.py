"""Store URLs without their secrets, fit for messages and logs."""

from __future__ import annotations

import re

HIDDEN = "***"
_USERINFO = re.compile(r"(.*?://)?.*@", re.DOTALL)
_SECRET_OPTION = re.compile(r"([?&][^=&]*(?:pass|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)
_AUTHORITY = re.compile(r"(.*?://(?:\[[^]]*]|[^:/?#@]*):)(([^/?#]*).*)", re.DOTALL)


def redacted(url: str) -> str:
    """``url`` with everything hidden that may be a secret; a URL that holds none is returned as it is.

    Meant for what people mistype, too: a password may hold ``@``, ``/`` or ``#``, and one whose host was forgotten
    stands where the port should be. Hides too much rather than too little.
    """
    url = _SECRET_OPTION.sub(rf"\1{HIDDEN}", url)
    if "@" in url:
        return _USERINFO.sub(lambda found: f"{found[1] or ''}{HIDDEN}@", url, count=1)
    authority = _AUTHORITY.match(url)
    if authority and not _is_port(authority[3]):
        return authority[1] + HIDDEN
    return url


def _is_port(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= 5 and 1 <= int(text) <= 65535
