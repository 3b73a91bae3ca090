"""The pages as a web application: routes, errors as statuses, forms."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from secrets import token_hex
from threading import Lock
from typing import Protocol, TypeVar
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
from pollconsumer.dashboard.access import Access, PageAnswer, Visitor, page_answer, plain_answer, redirect
from pollconsumer.dashboard.excerpts import Letters, Sweep, Wanted
from pollconsumer.dashboard.page_reader import (
    AnyPage,
    Front,
    OfMessage,
    OfPast,
    OfQueue,
    OfSearch,
    PageReader,
    PastSpan,
)
from pollconsumer.dashboard.pages import ICON, LONGEST_NAME, SCRIPT, STYLE, Pages, Served, static_file
from pollconsumer.store.audit_log import acting_as
from pollconsumer.store.reading.batch_reader import BatchStatus
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
    STYLE: "text/css; charset=utf-8",
    ICON: "image/svg+xml",
    SCRIPT: "text/javascript; charset=utf-8",
}
Query = Mapping[str, str]
Read = Callable[[PageReader, Query], Front | AnyPage]
T = TypeVar("T")
SWEEP_WITHIN = 20.0
"""Seconds for one action on many messages: browsers and proxies wait that long for an answer."""
_UNFINISHED = f"that took {SWEEP_WITHIN:.0f} s: press the button again for the rest"


class Dashboard:
    """The application. ``reading``: what reads the pages of a store."""

    def __init__(
        self, store: PageStore, reading: Callable[[Store], PageReader], access: Access, namespace: str
    ) -> None:
        self._store, self._reading, self._access = store, reading, access
        forms = {False: None, True: access.form}
        self._pages = {acts: Pages(namespace, Served(), form) for acts, form in forms.items()}
        self._done: dict[str, str] = {}

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
            found = self._answer(request, name, READ.get(name) if reads else None)
        return found._replace(said=b"") if request.method == "HEAD" else found

    def _answer(self, request: WebRequest, name: str, read: Read | None) -> PageAnswer:
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        if read is not None and (welcome := self._access.welcome(query.get("token", ""))) is not None:
            return welcome
        visitor = self._access.visitor(request)
        if visitor is None:
            return self._problem("Access denied", self._access.refusal, 403)
        if read is not None:
            pages, refresh = self._pages[visitor.acts], _seconds(query)

            def shown() -> PageAnswer:
                page = self._store.ask(lambda store: read(self._reading(store), query))
                done = self._done.pop(query.get("done", ""), None)  # told once
                if isinstance(page, Front):
                    return page_answer(pages.front(page, served=True, refresh=refresh, done=done))
                return page_answer(pages.page(name, page, done))

            return self._told(shown)._replace(live=name == "" and refresh is not None)
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
        served, address = Served(), "./?"
        if form["what"].endswith("_batch"):
            address = f"{served.batch(form['queue'], form['id']) or './?'}&"
        elif "id" in form and "queue" in form:
            address = f"{served.message(form['queue'], form['id']) or './?'}&"
        elif form["what"].endswith("_all"):
            address = f"{served.dead(*map(form.get, Wanted._fields))}&"
        mark = token_hex(8)
        self._done = dict([*self._done.items(), (mark, said)][-MOST_DONE:])
        return f"{address}done={mark}"


def _message(reading: PageReader, query: Query) -> OfMessage:
    queue = query.get("queue") or None
    return reading.message(_named(query, "id"), queue and check_queue(queue))


def _queue(reading: PageReader, query: Query) -> OfQueue:
    state = query.get("state", State.READY.value)
    if state not in {*State}:
        raise NotFound("no such state", state, f"states are: {', '.join(State)}")
    return reading.queue(_named(query, "name"), State(state), _number(query, "skip"))


def _search(reading: PageReader, query: Query) -> OfSearch:
    given = {"text": query.get("q", "").strip(), "header": query.get("header", "")}
    return reading.search(**{name: _named(given, name) for name, text in given.items() if text})


def _past(reading: PageReader, query: Query) -> OfPast:
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
    "interventions": lambda reading, _: reading.interventions(),
}
"""What is read for each page, by its address."""


def _named(query: Query, name: str) -> str:
    value = query.get(name, "")
    if not 0 < len(value) <= LONGEST_NAME:
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


class PageActions:
    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self.actions: dict[str, Callable[[Mapping[str, str]], Iterator[str]]] = {
            "redrive": self._redrive,
            "redrive_all": lambda form: self._sweep(form, self._store.interventions.redrive, "redriven"),
            "purge_all": lambda form: self._sweep(form, self._store.interventions.purge, "purged"),
            "cancel": self._cancel,
            "pause": lambda form: self._pause(form, paused=True),
            "resume": lambda form: self._pause(form, paused=False),
            "trigger": self._trigger,
            "cancel_batch": self._cancel_batch,
            "redrive_batch": self._redrive_batch,
        }

    def act(self, form: Mapping[str, str]) -> Iterator[str]:
        """Do the action that the form names as ``what``, step by step. Yields what was done until then, in words.
        BadData if it cannot be done, NotFound if there is no such message, batch, queue, recurrence or action."""
        action = self.actions.get(_value(form, "what"))
        if action is None:
            raise NotFound("no such action", form["what"], f"there are: {', '.join(self.actions)}")
        return action(form)

    def _redrive(self, form: Mapping[str, str]) -> Iterator[str]:
        queue, message_id = _queue_of(form), _value(form, "id")
        if not self._store.interventions.redrive(queue, [message_id]):
            raise BadData("cannot redrive", message_id, "it is no dead letter any more")
        yield f"Redriven: {message_id}"

    def _cancel(self, form: Mapping[str, str]) -> Iterator[str]:
        self._store.interventions.cancel(_queue_of(form), _value(form, "id"))
        yield f"Cancelled: {form['id']}"

    def _pause(self, form: Mapping[str, str], *, paused: bool) -> Iterator[str]:
        name = self._store.inspector.counts(_queue_of(form)).name
        self._store.interventions.pause(name, paused=paused)
        yield f"{'Paused' if paused else 'Resumed'}: {name}"

    def _trigger(self, form: Mapping[str, str]) -> Iterator[str]:
        self._store.recurrences.trigger(self._store.recurrences.find(_value(form, "name")))
        yield f"Triggered: {form['name']}"

    def _cancel_batch(self, form: Mapping[str, str]) -> Iterator[str]:
        for done, more in self._chunks(form, self._store.batch_interventions.cancel):
            stopped = f", {done.asked_to_stop:,} asked to stop" if done.asked_to_stop else ""
            yield f"{_members(done.cancelled)} cancelled{stopped}{more}"

    def _redrive_batch(self, form: Mapping[str, str]) -> Iterator[str]:
        for done, more in self._chunks(form, self._store.batch_interventions.redrive):
            yield f"{_members(done.redriven)} redriven{more}"

    def _chunks(self, form: Mapping[str, str], act: Callable[[BatchStatus], Iterator[T]]) -> Iterator[tuple[T, str]]:
        """Do ``act`` to a batch, one chunk after the other, within the time of an action; yields what was done until
        then, and words for what is left."""
        ends = self._clock() + SWEEP_WITHIN
        for done in act(self._store.batches.batch(_value(form, "id"), _queue_of(form))):
            yield done, f"; {_UNFINISHED}"
            if self._clock() >= ends:
                return
        yield done, ""

    def _sweep(self, form: Mapping[str, str], act: Callable[[str, list[str]], list[str]], what: str) -> Iterator[str]:
        """Do ``act`` to the dead letters that the form selects, one step after the other; yields what was done until
        then."""
        queue = _queue_of(form) if "queue" in form else None
        if queue is not None:
            self._store.inspector.counts(queue)
        ends = self._clock() + SWEEP_WITHIN
        sweep = Sweep(Letters(self._store), Wanted(queue, form.get("handler"), form.get("error")), act)
        more = True
        while more and self._clock() < ends:
            more = sweep.step()
            said = f"{sweep.done:,} dead letter{'' if sweep.done == 1 else 's'} {what}"
            if sweep.left:
                said += f", {sweep.left:,} left: record lost, or another message has the unique key"
            yield f"{said}; {_UNFINISHED}" if more else said


def _members(count: int) -> str:
    return f"{count:,} member{'' if count == 1 else 's'}"


def _value(form: Mapping[str, str], name: str) -> str:
    if name not in form:
        raise BadData(f"the form has no {name}")
    return form[name]


def _queue_of(form: Mapping[str, str]) -> str:
    return check_queue(_value(form, "queue"))


class PageStore(Protocol):
    """A store. Each question is given a connection that no other has meanwhile."""

    def ask(self, question: Callable[[Store], T]) -> T: ...

    def ask_for_each(self, question: Callable[[Store], Iterator[T]]) -> Iterator[T]:
        """Yield what a question yields."""


class SharedStore:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._one_at_a_time = Lock()

    def ask(self, question: Callable[[Store], T]) -> T:
        with self._one_at_a_time:
            return question(self._store)

    def ask_for_each(self, question: Callable[[Store], Iterator[T]]) -> Iterator[T]:
        """Yield what a question yields; other requests may use the connection in between."""
        found = question(self._store)
        while True:
            with self._one_at_a_time:
                several = [*islice(found, 1)]
            if not several:
                return
            yield several[0]
