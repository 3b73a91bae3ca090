"""Addresses of monitors."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

ADDRESS = r"https?://[^\s/?#]+[^\s]*"


def check_address(url: object) -> str:
    """``url``. ValueError if it is no address of a monitor; the error does not show the URL, which may be a secret."""
    # Compiled when a URL is checked: most launches import this module, and have none.
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
