"""The pages as a web application: routes, errors as statuses, forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from secrets import token_hex
from urllib.parse import parse_qs, parse_qsl

from pollconsumer.core.errors import (
    BadData,
    NotFound,
    PermissionDenied,
    PollConsumerError,
    StoreUnreachable,
    UsageError,
)
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import check_queue
from pollconsumer.dashboard import links
from pollconsumer.dashboard.access import Access, Visitor
from pollconsumer.dashboard.page_actions import PageActions
from pollconsumer.dashboard.page_answer import PageAnswer, page_answer, plain_answer, redirect
from pollconsumer.dashboard.page_store import PageStore
from pollconsumer.dashboard.pages import Pages, static_file
from pollconsumer.dashboard.readings.letters import Wanted
from pollconsumer.dashboard.readings.page_reader import PageReader
from pollconsumer.dashboard.readings.past_reader import PastSpan
from pollconsumer.store.audit_log import acting_as
from pollconsumer.store.store import Store
from pollconsumer.web.web_exchange import WebRequest, status_of

LONGEST_ADDRESS = 4096
"""Characters of a path and its query."""
LONGEST_FORM = 8192
"""Bytes of a form, at most."""
MOST_DONE = 32
"""Actions of which a page is still to say what they have done."""
STATUS: dict[type[PollConsumerError], tuple[int, str]] = {
    NotFound: (404, "Not found"),
    UsageError: (400, "Which one?"),
    BadData: (409, "Not possible"),
    PermissionDenied: (403, "Not permitted"),
    StoreUnreachable: (503, "The store does not answer"),
}
FILES = {
    links.STYLE: "text/css; charset=utf-8",
    links.ICON: "image/svg+xml",
    links.SCRIPT: "text/javascript; charset=utf-8",
}
Query = Mapping[str, str]
Page = Callable[[Pages, PageReader, Query], str]


class Dashboard:
    """The application. ``reading``: what reads the pages of a store."""

    def __init__(
        self, store: PageStore, reading: Callable[[Store], PageReader], access: Access, namespace: str
    ) -> None:
        self._store, self._reading, self._access = store, reading, access
        forms = {False: None, True: access.form}
        self._pages = {acts: Pages(namespace, links.Served(), form) for acts, form in forms.items()}
        self._done: dict[str, str] = {}
        self._get: dict[str, Page] = {
            "": self._front,
            "message": self._message,
            "queue": _queue,
            "handler": _handler,
            "dead": self._dead,
            "recurrence": _recurrence,
            "batches": _batches,
            "batch": self._batch,
            "search": _search,
            "past": _past,
            "interventions": lambda pages, reading, _: pages.interventions(reading.interventions()),
        }

    def answer(self, request: WebRequest) -> PageAnswer:
        """The answer to a request, whose path is that of the application."""
        if len(request.path) + len(request.query) > LONGEST_ADDRESS:
            return plain_answer("address too long", 414)
        if not request.path:  # of the site's path without a slash, where relative links lead astray
            return redirect(f"./{request.mount.rpartition('/')[2]}/")
        name, reads = request.path.removeprefix("/"), request.method in ("GET", "HEAD")
        if reads and name in FILES:
            found = PageAnswer(200, static_file(name), FILES[name])
        else:
            found = self._answer(request, name, self._get.get(name) if reads else None)
        return found._replace(said=b"") if request.method == "HEAD" else found

    def _answer(self, request: WebRequest, name: str, page: Page | None) -> PageAnswer:
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        if page is not None and (welcome := self._access.welcome(query.get("token", ""))) is not None:
            return welcome
        visitor = self._access.visitor(request)
        if visitor is None:
            return self._problem("Access denied", self._access.refusal, 403)
        if page is not None:
            shown = partial(page, self._pages[visitor.acts])
            found = self._told(lambda: page_answer(self._store.ask(lambda store: shown(self._reading(store), query))))
            return found._replace(live=name == "" and _seconds(query) is not None)
        if (request.method, name, visitor.acts) == ("POST", "act", True):
            return self._act(request, visitor)
        return self._problem("Not found", "there is no such page", 404)

    def _told(self, answer: Callable[[], PageAnswer]) -> PageAnswer:
        """``answer``, or the page about what is wrong."""
        try:
            return answer()
        except PollConsumerError as error:
            status, title = status_of(error, STATUS, (500, "The store cannot be read"))
            return self._problem(title, error, status)

    def _problem(self, title: str, error: PollConsumerError | str, status: int) -> PageAnswer:
        return page_answer(self._pages[False].problem(title, error), status)

    def _front(self, pages: Pages, reading: PageReader, query: Query) -> str:
        return pages.front(reading.front(), served=True, refresh=_seconds(query), done=self._told_of(query))

    def _message(self, pages: Pages, reading: PageReader, query: Query) -> str:
        queue = query.get("queue") or None
        found = reading.message(_named(query, "id"), queue and check_queue(queue))
        return pages.message(found, done=self._told_of(query))

    def _batch(self, pages: Pages, reading: PageReader, query: Query) -> str:
        queue, batch_id = check_queue(_named(query, "queue")), _named(query, "id")
        found = reading.of_batches.batch(queue, batch_id, _number(query, "first"))
        return pages.batch(found, done=self._told_of(query))

    def _dead(self, pages: Pages, reading: PageReader, query: Query) -> str:
        given = (query.get(name) or None for name in Wanted._fields)
        return pages.dead(reading.dead(Wanted(*given)), done=self._told_of(query))

    def _told_of(self, query: Query) -> str | None:
        """What the action before this page has done: told once, None from then on."""
        return self._done.pop(query.get("done", ""), None)

    def _act(self, request: WebRequest, visitor: Visitor) -> PageAnswer:
        form = _form(request)
        if form is None or not self._access.may_act(form.pop("token", ""), request.headers):
            text = "the form is out of date: go back, and reload the page"
            return self._problem("Refused", text, 403)
        return self._told(lambda: redirect(self._acted(form, visitor)))

    def _acted(self, form: dict[str, str], visitor: Visitor) -> str:
        """Do the action of a form. Returns the address of the page about it, which says what was done."""
        with acting_as(visitor.name):
            *_, said = self._store.ask_for_each(lambda store: PageActions(store).act(form))
        served, address = links.Served(), "./?"
        if form["what"].endswith("_batch"):
            address = f"{served.batch(form['queue'], form['id']) or './?'}&"
        elif "id" in form and "queue" in form:
            address = f"{served.message(form['queue'], form['id']) or './?'}&"
        elif form["what"].endswith("_all"):
            address = f"{served.dead(*map(form.get, Wanted._fields))}&"
        mark = token_hex(8)
        self._done = dict([*self._done.items(), (mark, said)][-MOST_DONE:])
        return f"{address}done={mark}"


def _queue(pages: Pages, reading: PageReader, query: Query) -> str:
    state = query.get("state", State.READY.value)
    if state not in {*State}:
        raise NotFound("no such state", state, f"states are: {', '.join(State)}")
    return pages.queue(reading.queue(_named(query, "name"), State(state), _number(query, "skip")))


def _handler(pages: Pages, reading: PageReader, query: Query) -> str:
    return pages.handler(reading.handler(_named(query, "name")))


def _recurrence(pages: Pages, reading: PageReader, query: Query) -> str:
    return pages.recurrence(reading.recurrence(_named(query, "name")))


def _search(pages: Pages, reading: PageReader, query: Query) -> str:
    given = {"text": query.get("q", "").strip(), "header": query.get("header", "")}
    return pages.search(reading.search(**{name: _named(given, name) for name, text in given.items() if text}))


def _past(pages: Pages, reading: PageReader, query: Query) -> str:
    span = query.get("of", "")
    if span not in {*PastSpan}:
        raise NotFound("no such span", span, f"spans are: {', '.join(PastSpan)}")
    return pages.past(reading.past(PastSpan(span)))


def _batches(pages: Pages, reading: PageReader, query: Query) -> str:
    queue = check_queue(_named(query, "queue"))
    return pages.batches(reading.of_batches.batches(queue, _number(query, "skip")))


def _named(query: Query, name: str) -> str:
    value = query.get(name, "")
    if not 0 < len(value) <= links.LONGEST_NAME:
        raise NotFound(f"no {name} given", None, "follow a link of the overview")
    return value


def _seconds(query: Query) -> int | None:
    """Seconds after which the first page is read again; None if it is not."""
    given = query.get("refresh", "")
    seconds = int(given) if given.isascii() and given.isdigit() and len(given) < 5 else 0
    return max(2, seconds) if seconds else None


def _number(query: Query, name: str) -> int:
    """A number that stands in the address; 0 for anything else."""
    value = query.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


def _form(request: WebRequest) -> dict[str, str] | None:
    """The values of a form that is not too long, each given once."""
    try:
        content = request.read(LONGEST_FORM + 1)
        read = parse_qs(content.decode("ascii"), max_num_fields=10) if len(content) <= LONGEST_FORM else {}
    except (OSError, ValueError):
        return None
    return {name: values[0] for name, values in read.items() if len(values) == 1}
