"""Access to the pages: who may look, and who may act.

At our own server everybody who knows the token may look; without a token, everybody who can connect. The first address
that a browser opens contains the token. From then on a cookie carries a value derived from it, which browsers do not
send from other sites' pages (SameSite=Strict). A change is a POST whose form has a second secret, derived from the
token, which no foreign page can read.

In a site, the site's own login says who the visitor is."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.users_code import answering, called
from pollconsumer.interface.api.app import PollConsumer, calls_of
from pollconsumer.interface.logs.logs import log
from pollconsumer.web.web_exchange import AsgiApplication, WebAnswer, WebRequest, equal_secrets, serve_wsgi

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
COMMON = (
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),  # under no-referrer, browsers send forms with `Origin: null`
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
HEADERS = (("content-security-policy", POLICY), *COMMON)
LIVE = (("content-security-policy", f"{POLICY}; script-src 'self'; connect-src 'self'"), *COMMON)
"""`HEADERS` for the one page with a script, a file of the dashboard that reloads the page's content."""
HTML = "text/html; charset=utf-8"
BY_TOKEN = "dashboard"
"""The name in the audit log for everybody who acts at our own server: whoever has the token."""


def page_answer(page: str, status: int = 200, *, live: bool = False) -> WebAnswer:
    """An answer with the HTML ``page``. ``live``: the page has the script that reloads it."""
    return WebAnswer(status, page.encode("utf-8", "backslashreplace"), HTML, LIVE if live else HEADERS)


def text_answer(text: str, status: int, *further: tuple[str, str]) -> WebAnswer:
    return WebAnswer(status, f"{text}\n".encode(), "text/plain; charset=utf-8", (*HEADERS, *further))


def redirect(address: str, *further: tuple[str, str]) -> WebAnswer:
    """An answer that redirects a browser to ``address``, by GET."""
    return WebAnswer(303, b"", HTML, (*HEADERS, ("location", address), *further))


class Visitor(NamedTuple):
    """A person who looks at the pages. ``acts``: whether they may also cancel, redrive, pause and so on."""

    name: str
    acts: bool = False


class TokenAccess:
    """Access at our own server. ``form``: the secret that a form must send. ``refusal``: the text for a visitor who may
    not look. ``only_looks``: the text for a visitor who may not act. ``token``: None if everybody who can connect may
    look. ``acts``: whether visitors who know a token may act. ``port`` is part of the cookie's name, since browsers
    send a host's cookies to all of its ports."""

    refusal = "open the address that the command printed: it has a token"
    only_looks = "these pages are read-only: start pollconsumer dashboard with --allow-actions"

    def __init__(self, token: str | None, *, acts: bool, port: int) -> None:
        self._token, self._cookie = token, f"pollconsumer-{port}"
        self._visitor = Visitor(BY_TOKEN, token is not None and acts)
        self.form = "" if token is None else _made(token, "form")

    def welcome(self, token: str) -> WebAnswer | None:
        """Give the browser a cookie, and redirect it to the address without the token. None if ``token`` is wrong."""
        if self._token is None or not equal_secrets(token, self._token):
            return None
        cookie = f"{self._cookie}={_made(self._token, 'cookie')}; HttpOnly; Path=/; SameSite=strict"
        return redirect("./", ("set-cookie", cookie))

    def visitor(self, request: WebRequest) -> Visitor | None:
        """The visitor who sent the request. None if they may not look."""
        if self._token is None:
            return self._visitor
        cookies = (each.strip().partition("=") for each in request.headers.get("cookie", "").split(";"))
        given = {name: value for name, _, value in cookies}.get(self._cookie)
        return self._visitor if given is not None and equal_secrets(given, _made(self._token, "cookie")) else None

    def may_act(self, form: str, headers: Mapping[str, str]) -> bool:
        """Whether one of our own pages sent the form, by its secret ``form`` (protection against CSRF)."""
        return equal_secrets(form, self.form) and _is_same_site(headers) is not False


class SiteAccess:
    """Access in a site. ``visitor`` is called with what the site's server gave: WSGI's environ, ASGI's scope or
    Django's request. The browser's headers say whether a form comes from one of our own pages."""

    refusal = "your login does not allow it"
    only_looks = "your login allows to look, and not to act"
    form = "site"

    def __init__(self, visitor: Callable[[Any], Visitor | None]) -> None:
        self._visitor = visitor

    def welcome(self, token: str) -> None:
        """Return None, as for a wrong token: a site has a login, and no token."""
        del token

    def visitor(self, request: WebRequest) -> Visitor | None:
        """The `Visitor` that the site's function returns. None if it returns anything else: the sender may not look,
        and the log says why, unless the function returned None."""
        with answering():
            found: object = called(self._visitor, request.source)
        if found is None or (isinstance(found, Visitor) and isinstance(found.name, str) and found.name):
            return found
        log.error(
            "dashboard: visitor returned %s; return Visitor(NAME), NAME as text, or None",
            f"Visitor({type(found.name).__name__})" if isinstance(found, Visitor) else type(found).__name__,
        )
        return None

    def may_act(self, form: str, headers: Mapping[str, str]) -> bool:
        return form == self.form and _is_same_site(headers) is True


Access = TokenAccess | SiteAccess
"""The rule that says who may look, and who may act."""


def _is_same_site(headers: Mapping[str, str]) -> bool | None:
    """Whether a form comes from a page of the same origin. None if the browser's headers do not say."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site in ("same-origin", "none")  # if a proxy changes Host or Referrer-Policy, Origin says less
    origin = headers.get("origin")
    if origin is None:
        return None
    host = origin.partition("://")[2]  # empty for `null`
    return bool(host) and host == headers.get("host")


def _made(token: str, purpose: str) -> str:
    return hmac.digest(token.encode(), purpose.encode(), "sha256").hex()


class DashboardEndpoint:
    """A WSGI application with the pages of ``app``'s store, below the path that the site gives it.

    ``visitor``: a function that, given WSGI's environ or ASGI's scope, returns a `Visitor`, or None for somebody who
    may not look. ``asgi``: the same application for ASGI."""

    asgi: AsgiApplication
    """The pages as an ASGI application, under asyncio."""

    def __init__(self, app: PollConsumer, visitor: Callable[[Any], Visitor | None]) -> None:
        # Imported lazily: they need jinja2, which `dashboard` itself reports missing.
        from pollconsumer.dashboard.server import LONGEST_FORM, site_dashboard

        # Settings are read at the first request, as elsewhere in an application.
        self._pages = cache(lambda: site_dashboard(calls_of(app), SiteAccess(visitor)))
        self.asgi = AsgiApplication(self.answer, lambda _: LONGEST_FORM + 1)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        return serve_wsgi(self.answer, environ, start_response)

    def answer(self, request: WebRequest) -> WebAnswer:
        """The answer to a request at another kind of server. It calls ``visitor`` with the request's ``source``."""
        try:
            pages = self._pages()
        except PollConsumerError as error:
            log.warning("dashboard: %s", error)  # its text may name a host or a path, which visitors must not see
            return text_answer("refused by the configuration; see the log", 500)
        return pages.answer(request)
