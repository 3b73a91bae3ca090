"""The dashboard within a site, whose login says who may look and act."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.dashboard.access import SiteAccess, Visitor
from pollconsumer.dashboard.page_answer import PageAnswer, plain_answer
from pollconsumer.interface.api.app import PollConsumer, calls_of
from pollconsumer.interface.logs.logs import log
from pollconsumer.web.asgi import AsgiApplication
from pollconsumer.web.web_exchange import WebRequest
from pollconsumer.web.wsgi import serve_wsgi


class DashboardEndpoint:
    """A WSGI application: the pages of ``app``'s store, below the path that the site gives it.

    ``visitor`` says who asks, from WSGI's environ or ASGI's scope: a `Visitor`, or None for somebody who may not look.
    ``asgi`` is the same as an ASGI application.
    """

    asgi: AsgiApplication
    """The pages as an ASGI application, under asyncio."""

    def __init__(self, app: PollConsumer, visitor: Callable[[Any], Visitor | None]) -> None:
        # Imported lazily: they need jinja2, which `dashboard` itself reports missing.
        from pollconsumer.dashboard.readings.page_reader import reading_of
        from pollconsumer.dashboard.server import LONGEST_FORM, Dashboard

        @cache
        def pages() -> Dashboard:
            calls = calls_of(app)
            settings = calls.settings()  # read at the first request, as elsewhere in an application
            return Dashboard(calls, partial(reading_of, settings), SiteAccess(visitor), settings.namespace)

        self._pages = pages
        self.asgi = AsgiApplication(self.answer, lambda _: LONGEST_FORM + 1)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        return serve_wsgi(self.answer, environ, start_response)

    def answer(self, request: WebRequest) -> PageAnswer:
        """The answer to a request, for a server of another kind. ``visitor`` is asked with its ``source``."""
        try:
            pages = self._pages()
        except PollConsumerError as error:
            log.warning("dashboard: %s", error)  # it may name a host or a path, which are not told
            return plain_answer("refused by the configuration; see the log", 500)
        return pages.answer(request)
