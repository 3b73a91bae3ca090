"""Who may look, and act: whoever knows the token, where there is one.

It comes once, in the address that the command prints, and goes on as a cookie that no other site's page can send
(SameSite=Strict). What changes something is a POST, whose form has a second secret, made from the first: no page of
somebody else's can read it.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit


class DashboardAccess:
    """Who may look, and who may act. ``token``: None where everybody who can connect may look. ``acts``: whether one
    may act from the pages."""

    def __init__(self, token: str | None, *, acts: bool) -> None:
        self._token = token
        self.form = _made(token, "form") if token is not None and acts else None
        """What a form must send; None where nothing can be done."""

    @property
    def is_open(self) -> bool:
        return self._token is None

    def admits(self, token: str) -> bool:
        return self._token is not None and _equal(token, self._token)

    def cookie(self) -> str:
        """What a browser that had the token sends from then on."""
        assert self._token is not None
        return _made(self._token, "cookie")

    def knows(self, cookie: str | None) -> bool:
        return self.is_open or (cookie is not None and _equal(cookie, self.cookie()))

    def may_act(self, form: str, headers: Mapping[str, str]) -> bool:
        """Whether a request whose cookie is known may do what its form says."""
        if self.form is None or not _equal(form, self.form):
            return False
        if (site := headers.get("sec-fetch-site")) is not None:
            return site in ("same-origin", "none")  # where a proxy changes Host or Referrer-Policy, Origin says less
        origin = headers.get("origin")
        return origin is None or urlsplit(origin).netloc == headers.get("host")


def _made(token: str, purpose: str) -> str:
    return hmac.digest(token.encode(), purpose.encode(), "sha256").hex()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
