"""The pages as a web application: routes, errors as HTTP statuses, forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from secrets import token_hex
from threading import Lock
from typing import TypeVar
from urllib.parse import parse_qs, parse_qsl

from pollconsumer.core.errors import (
    BadData,
    NotFound,
    PayloadTooLarge,
    PermissionDenied,
    PollConsumerError,
    QueueFull,
    StoreUnreachable,
    UsageError,
)
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import check_queue
from pollconsumer.dashboard.access import HEADERS, Access, TokenAccess, Visitor, page_answer, redirect, text_answer
from pollconsumer.dashboard.console import Console, command_console
from pollconsumer.dashboard.excerpts import Wanted
from pollconsumer.dashboard.page_actions import LEADS_TO, Made, PageActions
from pollconsumer.dashboard.page_reader import Page, PageReader, PastSpan, reading_of
from pollconsumer.dashboard.pages import ADDRESSES, ICON, LONGEST_NAME, SCRIPT, STYLE, Pages, Served, static_file
from pollconsumer.interface.api.store_calls import AppCalls
from pollconsumer.interface.settings.model import Settings
from pollconsumer.store.audit_log import acting_as
from pollconsumer.store.store import Store
from pollconsumer.web.web_exchange import WebAnswer, WebRequest, status_of

LONGEST_ADDRESS = 4096
"""Maximum length of a path with its query, in characters."""
LONGEST_FORM, MOST_FIELDS = 64 << 10, 200
"""Maximum number of bytes, and of fields, of a form."""
MOST_SECONDS = 10_000
"""``refresh`` in an address is accepted if it is less than so many seconds."""
MOST_DONE = 32
"""Number of actions whose results are stored until a page shows them."""
STATUS: dict[type[PollConsumerError], tuple[int, str]] = {
    NotFound: (404, "Not found"),
    UsageError: (400, "Which one?"),
    BadData: (409, "Not possible"),
    PermissionDenied: (403, "Not permitted"),
    PayloadTooLarge: (413, "Too long"),
    QueueFull: (429, "The queue is full"),
    StoreUnreachable: (503, "The store does not answer"),
}
FILES = {
    STYLE: "text/css; charset=utf-8",
    ICON: "image/svg+xml",
    SCRIPT: "text/javascript; charset=utf-8",
}
Query = Mapping[str, str]
Read = Callable[[PageReader, Query], Page]
T = TypeVar("T")


class Dashboard:
    """The web application. ``reading``: returns a `PageReader` for a store."""

    def __init__(
        self,
        store: PageStore,
        reading: Callable[[Store], PageReader],
        access: Access,
        namespace: str,
        console: Console,
    ) -> None:
        self._store, self._reading, self._access, self._console = store, reading, access, console
        forms = {False: None, True: access.form}
        self._pages = {acts: Pages(namespace, Served(), form) for acts, form in forms.items()}
        self._done: dict[str, str] = {}

    def answer(self, request: WebRequest) -> WebAnswer:
        """The answer to a request at one of the application's paths."""
        if len(request.path) + len(request.query) > LONGEST_ADDRESS:
            return text_answer("address too long", 414)
        if not request.path:  # the site's path without a slash, where relative links would be wrong
            return redirect(f"./{request.mount.rpartition('/')[2]}/")
        name, reads = request.path.removeprefix("/"), request.method in ("GET", "HEAD")
        if reads and name in FILES:
            found = WebAnswer(200, static_file(name), FILES[name], HEADERS)
        else:
            found = self._answer(request, name, READ.get(name) if reads else None)
        return found._replace(body=b"") if request.method == "HEAD" else found

    def _answer(self, request: WebRequest, name: str, read: Read | None) -> WebAnswer:
        query, reads = dict(parse_qsl(request.query, keep_blank_values=True)), request.method in ("GET", "HEAD")
        if read is not None and (welcome := self._access.welcome(query.get("token", ""))) is not None:
            return welcome
        visitor = self._access.visitor(request)
        if visitor is None:
            return self._problem("Access denied", self._access.refusal, 403)
        if read is not None:
            pages, refresh = self._pages[bool(visitor.acts)], _seconds(query)

            def read_page() -> WebAnswer:
                page = self._store.ask(lambda store: read(self._reading(store), query))
                done = self._done.pop(query.get("done", ""), None)  # told once
                shown = pages.page(name or "front", page, refresh=refresh, done=done)
                return page_answer(shown, live=name == "" and refresh is not None)

            return self._answered(read_page)
        if not (name in FORMS if reads else (request.method, name) == ("POST", "act")):
            return self._problem("Not found", "there is no such page", 404)
        if not visitor.acts:
            return self._problem("Not permitted", self._access.only_looks, 403)
        return self._answered(lambda: self._filled_in(name, query) if reads else self._act(request, visitor))

    def _answered(self, answer: Callable[[], WebAnswer]) -> WebAnswer:
        """What ``answer`` returns, or a page about the error that it raises."""
        try:
            return answer()
        except PollConsumerError as error:
            status, title = status_of(error, STATUS, (500, "The store cannot be read"))
            return self._problem(title, error, status)

    def _problem(self, title: str, error: PollConsumerError | str, status: int) -> WebAnswer:
        return page_answer(self._pages[False].problem(title, error), status)

    def _act(self, request: WebRequest, visitor: Visitor) -> WebAnswer:
        form = _form(request)
        if form is None or not self._access.may_act(form.pop("token", ""), request.headers):
            text = "the form is out of date: go back, and reload the page"
            return self._problem("Refused", text, 403)
        return self._acted_or_asked(form, visitor)

    def _acted_or_asked(self, form: dict[str, str], visitor: Visitor) -> WebAnswer:
        """The answer to an action. If the action is refused, and a page with its form exists, that page with the
        error."""
        try:
            return redirect(self._acted(form, visitor))
        except StoreUnreachable:
            raise
        except PollConsumerError as error:
            if (name := form.get("what", "")) not in FORMS:
                raise
            return self._filled_in(name, form, error)

    def _filled_in(self, name: str, given: Mapping[str, str], error: PollConsumerError | None = None) -> WebAnswer:
        """The page of the form ``name``, filled in with ``given``. ``error``: why these values were refused."""
        page = self._store.ask(lambda store: FORMS[name](self._console, store, given))
        page.error = error and str(error)
        status = 200 if error is None else status_of(error, STATUS, (500, ""))[0]
        return page_answer(self._pages[True].page(name, page), status)

    def _acted(self, form: dict[str, str], visitor: Visitor) -> str:
        """Carry out the action of a form. Returns the address of the page that shows the result."""
        with acting_as(visitor.name):
            *_, done = self._store.ask_for_each(lambda store: PageActions(store, self._console, visitor.name).act(form))
        report, named = (done.report, done._asdict()) if isinstance(done, Made) else (done, form)
        page, receipt = LEADS_TO.get(form["what"]), token_hex(8)
        address = (page and Served()(page, *(named.get(name) for name in ADDRESSES[page]))) or "./"
        self._done = dict([*self._done.items(), (receipt, report)][-MOST_DONE:])
        return f"{address}{'&' if '?' in address else '?'}done={receipt}"


def _message(reading: PageReader, query: Query) -> Page:
    queue = query.get("queue") or None
    return reading.message(_named(query, "id"), queue and check_queue(queue))


def _queue(reading: PageReader, query: Query) -> Page:
    state = query.get("state", State.READY.value)
    if state not in {*State}:
        raise NotFound("no such state", state, f"states are: {', '.join(State)}")
    return reading.queue(_named(query, "name"), State(state), _number(query, "skip"))


def _search(reading: PageReader, query: Query) -> Page:
    given = {"text": query.get("q", "").strip(), "header": query.get("header", "")}
    return reading.search(**{name: _named(given, name) for name, text in given.items() if text})


def _past(reading: PageReader, query: Query) -> Page:
    span = query.get("of", "")
    if span not in {*PastSpan}:
        raise NotFound("no such span", span, f"spans are: {', '.join(PastSpan)}")
    return reading.past(PastSpan(span))


READ: dict[str, Read] = {
    "": lambda reading, _: reading.front(),
    "message": _message,
    "queue": _queue,
    "handler": lambda reading, query: reading.handler(_named(query, "name")),
    "dead": lambda reading, query: reading.dead(Wanted(*(query.get(name) or None for name in Wanted._fields))),
    "recurrence": lambda reading, query: reading.recurrence(_named(query, "name")),
    "batches": lambda reading, query: reading.batches(check_queue(_named(query, "queue")), _number(query, "skip")),
    "batch": lambda reading, query: reading.batch(
        check_queue(_named(query, "queue")), _named(query, "id"), _number(query, "first")
    ),
    "search": _search,
    "past": _past,
    "audit": lambda reading, _: reading.audit(),
}
"""Address of a page → the function that reads its values."""
FORMS: dict[str, Callable[[Console, Store, Query], Page]] = {
    "enqueue": Console.enqueue_form,
    "put": Console.put_form,
}
"""Address of a form's page, which is also its action → the function that returns its values."""


def _named(query: Query, name: str) -> str:
    value = query.get(name, "")
    if not 0 < len(value) <= LONGEST_NAME:
        raise NotFound(f"no {name} given", None, "follow a link of the overview")
    return value


def _seconds(query: Query) -> int | None:
    """After how many seconds the first page is reloaded; None if it is not."""
    seconds = _number(query, "refresh")
    return max(2, seconds) if 0 < seconds < MOST_SECONDS else None


def _number(query: Query, name: str) -> int:
    """The number ``name`` in the address; 0 if it is missing or invalid."""
    value = query.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


def _form(request: WebRequest) -> dict[str, str] | None:
    """The values of a form, without names that occur twice; None if it is unreadable. PayloadTooLarge."""
    try:
        content = request.read(LONGEST_FORM + 1)
        read = parse_qs(content.decode("ascii"), max_num_fields=MOST_FIELDS) if len(content) <= LONGEST_FORM else None
    except (OSError, ValueError):
        return None
    if read is None:
        fix = "shorten its texts, or use the command line"
        raise PayloadTooLarge("form", f"more than {LONGEST_FORM >> 10} KiB, URL-encoded", fix)
    return {name: values[0] for name, values in read.items() if len(values) == 1}


class SharedStore:
    """One connection for all requests, used by one question at a time. `AppCalls` has one for each question."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._one_at_a_time = Lock()

    def ask(self, question: Callable[[Store], T]) -> T:
        with self._one_at_a_time:
            return question(self._store)

    def ask_for_each(self, question: Callable[[Store], Iterator[T]]) -> Iterator[T]:
        """Yield what ``question`` yields. Other requests may use the connection between two items."""
        found = question(self._store)
        while True:
            with self._one_at_a_time:
                several = [*islice(found, 1)]
            if not several:
                return
            yield several[0]


PageStore = AppCalls | SharedStore
"""Gives each question a connection that no other question uses meanwhile."""


def site_dashboard(calls: AppCalls, access: Access) -> Dashboard:
    """The pages of an application within a site."""
    settings = calls.settings()
    return Dashboard(calls, partial(reading_of, settings), access, settings.namespace, Console(lambda _: calls))


def command_dashboard(settings: Settings, store: Store, access: TokenAccess, *, acts: bool) -> Dashboard:
    """The pages of the command ``dashboard``. ``acts``: visitors may act, so forms need handlers."""
    console = command_console(settings, imports=acts)
    return Dashboard(SharedStore(store), partial(reading_of, settings), access, settings.namespace, console)
