"""An answer with a page, and what it tells browsers that they may do with it."""

from __future__ import annotations

from typing import NamedTuple

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # under no-referrer, browsers send forms with `Origin: null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LIVE = HEADERS | {
    "content-security-policy": f"{HEADERS['content-security-policy']}; script-src 'self'; connect-src 'self'"
}
"""The same for the one page that has a script, a file of ours that reads the page again."""


class PageAnswer(NamedTuple):
    """An answer with the content ``said``, of the type ``kind``. ``live``: it has the script."""

    status: int
    said: bytes
    kind: str = "text/html; charset=utf-8"
    further: tuple[tuple[str, str], ...] = ()
    """Headers beside those of every answer."""
    live: bool = False

    def headers(self) -> list[tuple[str, str]]:
        plain = [("content-type", self.kind), ("content-length", str(len(self.said)))]
        return [*plain, *(LIVE if self.live else HEADERS).items(), *self.further]

    def content(self) -> bytes:
        return self.said


def page_answer(page: str, status: int = 200) -> PageAnswer:
    return PageAnswer(status, page.encode("utf-8", "backslashreplace"))


def plain_answer(text: str, status: int) -> PageAnswer:
    return PageAnswer(status, f"{text}\n".encode(), "text/plain; charset=utf-8")


def redirect(address: str, *further: tuple[str, str]) -> PageAnswer:
    """An answer that leads a browser to ``address``, by GET."""
    return PageAnswer(303, b"", further=(("location", address), *further))
