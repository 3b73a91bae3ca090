"""The pages as a web application."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from threading import Lock
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from pollconsumer.core.errors import BadData, NotFound, PollConsumerError, StoreUnreachable, UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import check_queue
from pollconsumer.dashboard import links
from pollconsumer.dashboard.access import DashboardAccess
from pollconsumer.dashboard.guard import App, Guard
from pollconsumer.dashboard.page_actions import PageActions
from pollconsumer.dashboard.pages import Pages, static_file
from pollconsumer.dashboard.readings.letters import Wanted
from pollconsumer.dashboard.readings.page_reader import PageReader

LONGEST_FORM = 8192
"""Bytes of a form, at most."""
MOST_DONE = 32
"""Actions of which a page is still to say what they have done."""
STATUS: dict[type[PollConsumerError], tuple[int, str]] = {
    NotFound: (404, "Not found"),
    UsageError: (400, "Which one?"),
    BadData: (409, "Not possible"),
    StoreUnreachable: (503, "The store does not answer"),
}


class Dashboard:
    """The application. ``port`` is part of the cookie's name, since cookies of a host are sent to all of its ports."""

    def __init__(
        self, reading: PageReader, acting: PageActions, access: DashboardAccess, *, host: str, port: int
    ) -> None:
        self._reading, self._acting, self._access = reading, acting, access
        self._pages = Pages(reading.namespace, links.Served(), access.form)
        self._cookie = f"pollconsumer-{port}"
        self._one_at_a_time = Lock()  # requests share a connection to the store
        self._done: dict[str, str] = {}
        get = {
            "/": self._front,
            "/message": self._message,
            "/queue": self._queue,
            "/handler": self._handler,
            "/dead": self._dead,
            "/recurrence": self._recurrence,
            "/batches": self._batches,
            "/batch": self._batch,
        }
        routes = [Route(path, self._answering(page)) for path, page in get.items()]
        files = {links.STYLE: "text/css", links.ICON: "image/svg+xml"}
        routes += [Route(f"/{name}", _file(name, kind)) for name, kind in files.items()]
        if access.form is not None:
            routes.append(Route("/act", self._act, methods=["POST"]))
        application = Starlette(routes=routes, exception_handlers={404: self._unknown, 405: self._unknown})
        self.app: App = Guard(application, host)

    def _answering(self, page: Callable[[Request], str]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            if self._access.admits(request.query_params.get("token", "")):
                return self._welcome()
            return self._refused(request) or self._told(lambda: self._shown(page, request))

        return answer

    def _shown(self, page: Callable[[Request], str], request: Request) -> Response:
        with self._one_at_a_time:
            return HTMLResponse(page(request))

    def _told(self, answer: Callable[[], Response]) -> Response:
        """``answer``, or the page about what is wrong."""
        try:
            return answer()
        except PollConsumerError as error:
            known = (STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
            status, title = next(known, (500, "The store cannot be read"))
            return HTMLResponse(self._pages.problem(title, error), status)

    def _refused(self, request: Request) -> Response | None:
        if self._access.knows(request.cookies.get(self._cookie)):
            return None
        text = "open the address that the command printed: it has a token"
        return HTMLResponse(self._pages.problem("Not yours to see", text), 403)

    def _welcome(self) -> Response:
        """Give the browser a cookie, and lead it to an address without the token."""
        response = RedirectResponse("./", 303)
        response.set_cookie(self._cookie, self._access.cookie(), httponly=True, samesite="strict")
        return response

    def _front(self, request: Request) -> str:
        refresh = request.query_params.get("refresh", "")
        seconds = int(refresh) if refresh.isascii() and refresh.isdigit() and len(refresh) < 5 else 0
        refresh_after = max(2, seconds) if seconds else None
        return self._pages.front(self._reading.front(), served=True, refresh=refresh_after, done=self._told_of(request))

    def _message(self, request: Request) -> str:
        queue = request.query_params.get("queue") or None
        found = self._reading.message(_named(request, "id"), queue and check_queue(queue))
        return self._pages.message(found, done=self._told_of(request))

    def _queue(self, request: Request) -> str:
        state = request.query_params.get("state", State.READY.value)
        if state not in {*State}:
            raise NotFound("no such state", state, f"states are: {', '.join(State)}")
        found = self._reading.queue(_named(request, "name"), State(state), _number(request, "skip"))
        return self._pages.queue(found)

    def _handler(self, request: Request) -> str:
        return self._pages.handler(self._reading.handler(_named(request, "name")))

    def _recurrence(self, request: Request) -> str:
        return self._pages.recurrence(self._reading.recurrence(_named(request, "name")))

    def _batches(self, request: Request) -> str:
        queue = check_queue(_named(request, "queue"))
        return self._pages.batches(self._reading.of_batches.batches(queue, _number(request, "skip")))

    def _batch(self, request: Request) -> str:
        queue, batch_id = check_queue(_named(request, "queue")), _named(request, "id")
        found = self._reading.of_batches.batch(queue, batch_id, _number(request, "first"))
        return self._pages.batch(found, done=self._told_of(request))

    def _dead(self, request: Request) -> str:
        given = (request.query_params.get(name) or None for name in Wanted._fields)
        return self._pages.dead(self._reading.dead(Wanted(*given)), done=self._told_of(request))

    def _told_of(self, request: Request) -> str | None:
        """What the action before this page has done: told once, None from then on."""
        return self._done.pop(request.query_params.get("done", ""), None)

    async def _act(self, request: Request) -> Response:
        if (refused := self._refused(request)) is not None:
            return refused
        form = await _form(request)
        if form is None or not self._access.may_act(form.pop("token", ""), request.headers):
            text = "its form is not from this page, or of an earlier start of the command: go back, and reload"
            return HTMLResponse(self._pages.problem("Refused", text), 403)
        return await run_in_threadpool(self._told, lambda: RedirectResponse(self._acted(form), 303))

    def _acted(self, form: dict[str, str]) -> str:
        """Do the action of a form. Returns the address of the page about it, which says what was done."""
        said, served, address = self._acting.act(form, self._one_at_a_time), links.Served(), "./?"
        if form["what"].endswith("_batch"):
            address = f"{served.batch(form['queue'], form['id']) or './?'}&"
        elif "id" in form and "queue" in form:
            address = f"{served.message(form['queue'], form['id']) or './?'}&"
        elif form["what"].endswith("_all"):
            address = f"{served.dead(*map(form.get, Wanted._fields))}&"
        mark = token_hex(8)
        self._done = dict([*self._done.items(), (mark, said)][-MOST_DONE:])
        return f"{address}done={mark}"

    async def _unknown(self, request: Request, _: Exception) -> Response:
        return self._refused(request) or HTMLResponse(self._pages.problem("Not found", "there is no such page"), 404)


def _named(request: Request, name: str) -> str:
    value = request.query_params.get(name, "")
    if not 0 < len(value) <= links.LONGEST_NAME:
        raise NotFound(f"no {name} given", None, "follow a link of the overview")
    return value


def _number(request: Request, name: str) -> int:
    """A number that stands in the address; 0 for anything else."""
    value = request.query_params.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


async def _form(request: Request) -> dict[str, str] | None:
    """The values of a form that is not too long, each given once."""
    content = b""
    try:
        async for part in request.stream():
            content += part
            if len(content) > LONGEST_FORM:
                return None
    except ClientDisconnect:
        return None
    try:
        read = parse_qs(content.decode("ascii"), max_num_fields=10)
    except ValueError:
        return None
    return {name: values[0] for name, values in read.items() if len(values) == 1}


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    content = static_file(name)

    def answer(_: Request) -> Response:
        return Response(content, media_type=kind)

    return answer
