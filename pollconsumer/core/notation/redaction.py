"""Store URLs without their secrets, fit for messages and logs."""

from __future__ import annotations

import re

HIDDEN = "***"
# Compiled when they are first used: most launches print no URL.
_USERINFO = r"(?s)(.*?://)?.*@"
_SECRET_OPTION = r"(?i)([?&][^=&]*(?:pass|secret|token)[^=&]*=)[^&]*"
_HOSTS = r"[\w.-]+(:[0-9]{1,5})?(,[\w.-]+(:[0-9]{1,5})?)*"
_AUTHORITY = r"(?s)(.*?://(?:\[[^]]*]|[^:/?#@]*):)(([^/?#]*).*)"


def redacted(url: str) -> str:
    """``url`` with everything that may be a secret hidden.

    Malformed URLs too: a password may contain ``@``, ``/`` or ``#``, and without a host it is in the place of the port.
    Hides too much rather than too little.
    """
    url = re.sub(_SECRET_OPTION, rf"\1{HIDDEN}", url)
    if "@" in url:
        return re.sub(_USERINFO, lambda found: f"{found[1] or ''}{HIDDEN}@", url, count=1)
    authority = re.match(_AUTHORITY, url)
    if authority and not _is_port(authority[3]):
        return authority[1] + HIDDEN
    return url


def site_of(url: str) -> str:
    """Scheme and host of ``url``, whose path is a secret, as of a monitor."""
    scheme, separator, rest = url.partition("://")
    host = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{host}/{HIDDEN}" if separator and host else HIDDEN


def _is_port(text: str) -> bool:
    """Whether ``text`` is a port, alone or followed by further hosts of a list."""
    text, _, others = text.partition(",")
    listed = not others or re.fullmatch(_HOSTS, others)
    return bool(listed) and text.isdecimal() and text.isascii() and len(text) <= 5 and 1 <= int(text) <= 65535
