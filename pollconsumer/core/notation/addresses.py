"""Addresses of monitors."""

from __future__ import annotations

import re

ADDRESS = r"https?://[^\s/?#]+[^\s]*"


def check_address(url: object) -> str:
    """``url``. ValueError if no monitor can have it, without any part of it: it may be a secret."""
    # Compiled when one is checked: most launches, which import this, have none.
    if not isinstance(url, str) or not (url.isascii() and url.isprintable() and re.fullmatch(ADDRESS, url)):
        raise ValueError("write https://HOST/…, without spaces")
    return url
