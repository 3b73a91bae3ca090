"""What each page shows, read from the store. Every read is bounded, however many messages there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pollconsumer.core.durations import Histogram
from pollconsumer.core.errors import NotFound, UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import read_header
from pollconsumer.core.messages.message_steps import Recorded
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.dashboard.excerpts import Completions, Excerpts, Letter, LetterGroup, Letters, Wanted, groups_of
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.handling.arguments import FormField
from pollconsumer.store.audit_log import Intervention
from pollconsumer.store.leases import LAUNCHES_KEPT, MOST_LAUNCHES_KEPT
from pollconsumer.store.reading.batch_reader import WAITING, BatchStatus
from pollconsumer.store.reading.inspector import Inspector, Overview, QueueCounts
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records.rows import id_bytes
from pollconsumer.store.recurrence_actions import Occurred
from pollconsumer.store.recurrences import RecurrenceStatus
from pollconsumer.store.store import Store
from pollconsumer.watching.examiner import Examiner, expected_of
from pollconsumer.watching.facts import Expected, Finding
from pollconsumer.watching.findings import findings_of

HOUR = 3_600_000
"""An hour in milliseconds: the time that the pictures show."""
SHOWN = 10
"""Messages of a state on the first page."""
PAGE = 50
"""Messages on a page of their own."""
LOOKED_THROUGH = 200
"""Messages of each state in which a handler's are looked for."""
SEARCHED = 1000
"""Messages of each state in which those with a header are looked for."""
LETTERS = 500
"""Dead letters whose errors are looked at."""
RECURRENCES = 200
AUDITED = 500
QUEUES_SAMPLED = 20
HANDLERS = 50
"""Handlers whose totals are shown."""
INSTANTS, OCCURRENCES = 5, 20
"""How many instants ahead, and how many occurrences behind, the page of a recurrence shows."""


class DeadLettersPage(NamedTuple):
    """The page of dead letters. ``all``: how many the queues have; ``groups``: the ``wanted`` ones among the last
    ``looked_at``, by handler and error; ``messages``: the last of the wanted ones."""

    now: int
    wanted: Wanted
    all: int
    looked_at: int
    groups: Sequence[LetterGroup]
    messages: Sequence[Message] = ()


class Front(NamedTuple):
    """The first page. ``now``: the server's clock, in epoch ms. ``launches``: those of the last hour, newest first.
    ``completions``: what each queue completed in that hour."""

    now: int
    findings: Sequence[Finding]
    server: str
    overview: Overview
    launches: Sequence[Mapping[str, Any]]
    completions: Mapping[str, Completions]
    in_flight: Sequence[Message]
    dead: DeadLettersPage
    schedule: Sequence[Message]
    recurrences: Sequence[RecurrenceStatus]
    handlers: Mapping[str, Histogram]


class MessagePage(NamedTuple):
    """The page of a message. ``checkpoint``: None if there is none, or it was not read, as ``recorded`` has nothing
    then. ``batch``: queue and id of its batch, if that is kept."""

    now: int
    message: Message
    checkpoint: Mapping[str, Any] | None = None
    recorded: Recorded = Recorded()
    batch: tuple[str, str] | None = None


class QueuePage(NamedTuple):
    """The page of a queue. ``messages``: a part of those in ``state``, from number ``skip`` on; ``more``: whether
    others follow. ``batches``: how many are counted there."""

    now: int
    counts: QueueCounts
    completions: Completions
    state: State
    messages: Sequence[Message]
    skip: int
    more: bool
    batches: int = 0


class HandlerPage(NamedTuple):
    """The page of a handler. ``messages``: in each state, those among its first or last LOOKED_THROUGH.
    ``durations``: None if no message of the handler was ever completed."""

    now: int
    name: str
    durations: Histogram | None
    messages: Mapping[State, Sequence[Message]]
    paused: bool = False


class RecurrencePage(NamedTuple):
    """The page of a recurrence. ``next``: its next instants in epoch ms; ``history``: its last occurrences, newest
    first."""

    now: int
    status: RecurrenceStatus
    next: Sequence[int]
    history: Sequence[Occurred]


class SearchPage(NamedTuple):
    """The page of a search for a text, or for a header, as NAME=VALUE. ``messages``: those with that id; ``handlers``:
    those that have handled messages, and whose names have the text in them; ``labelled``: messages with that header, by
    state, among the first or last SEARCHED of each."""

    now: int
    text: str
    header: str
    messages: Sequence[Message] = ()
    handlers: Sequence[str] = ()
    labelled: Mapping[State, Sequence[Message]] = MappingProxyType({})


class AuditPage(NamedTuple):
    """The page of what people did, newest first."""

    now: int
    audit: Sequence[Intervention]


class BatchesPage(NamedTuple):
    """The page of a queue's batches. ``all``: how many the queue keeps. ``batches``: a part of them, from number
    ``skip`` on, each after its instant, as of `BatchReader.part`."""

    now: int
    queue: str
    all: int
    batches: Sequence[tuple[float, BatchStatus]]
    skip: int


class BatchPage(NamedTuple):
    """The page of a batch. ``called``: its callbacks that are kept. ``dead``: dead members from the number ``first``
    on; ``after``: the number that the next page begins with."""

    now: int
    batch: BatchStatus
    called: Sequence[Message]
    dead: Sequence[Message]
    first: int = 0
    after: int | None = None


class PastSpan(StrEnum):
    DAY = "day"
    WEEK = "week"

    @property
    def milliseconds(self) -> int:
        return 86_400_000 * (1 if self is PastSpan.DAY else 7)


class HandlerTotals(NamedTuple):
    """How the messages of a handler were settled, ever. ``mean_seconds``: how long one took; None if none did."""

    name: str
    completed: int
    retried: int
    dead: int
    others: int
    mean_seconds: float | None


class HistoryPage(NamedTuple):
    """The page of a day or a week. ``since``: the start of the oldest launch that is kept, in epoch ms, if that is
    later than the span's beginning."""

    now: int
    span: PastSpan
    launches: Sequence[Mapping[str, Any]]
    since: int | None
    totals: Sequence[HandlerTotals]


class OfEnqueue(NamedTuple):
    """The form of a new message for ``handler``; empty: it asks for that, one of ``handlers`` or another. ``known``:
    this process has it, with these ``fields``; ``takes_others``: and with arguments of any other names, too.
    ``options``: of the message. ``given``: what was filled in, and refused with ``error``."""

    now: int
    handler: str
    handlers: Sequence[str]
    options: Sequence[str]
    known: bool = False
    fields: Sequence[FormField] = ()
    takes_others: bool = True
    given: Mapping[str, str] = MappingProxyType({})
    error: str | None = None


class OfPut(NamedTuple):
    """The form of a recurrence: of one that is ``edited``, or, if that is empty, of a new one. ``asked``: what it asks
    for, and the words that there are for it. ``given``, ``error``: as of `OfEnqueue`."""

    now: int
    edited: str
    handlers: Sequence[str]
    asked: Mapping[str, Sequence[str]]
    given: Mapping[str, str] = MappingProxyType({})
    error: str | None = None


AnyPage = (
    MessagePage
    | QueuePage
    | HandlerPage
    | RecurrencePage
    | SearchPage
    | AuditPage
    | BatchesPage
    | BatchPage
    | HistoryPage
    | DeadLettersPage
    | OfEnqueue
    | OfPut
)
"""Any page but the first."""


class PageReader:
    def __init__(self, store: Store, expected: Expected, data: Path | None) -> None:
        """``expected``, ``data``: as for the Examiner."""
        self.store = store
        self._expected, self._data = expected, data
        self._inspector, self._excerpts, self._letters = store.inspector, Excerpts(store), Letters(store)

    def front(self) -> Front:
        facts = Examiner(self.store).facts(self._expected, self._data)
        overview = self._inspector.overview()
        since = facts.now - HOUR
        busiest = sorted(overview.queues, key=lambda queue: queue.completed, reverse=True)[:QUEUES_SAMPLED]
        return Front(
            now=facts.now,
            findings=findings_of(facts),
            server=facts.server.version,
            overview=overview,
            launches=[each for each in facts.launches if each.get("started_ms", 0) > since],
            completions={queue.name: self._excerpts.completions(queue.name, since) for queue in busiest},
            in_flight=self._excerpts.messages(State.RESERVED, SHOWN),
            dead=self._letters_wanted(Wanted(), facts.now)[0],
            schedule=self._excerpts.messages(State.SCHEDULED, SHOWN),
            recurrences=self.recurrences(),
            handlers=self._excerpts.durations(),
        )

    def recurrences(self) -> list[RecurrenceStatus]:
        """The recurrences with the next instants; if they are few all recurrences, with those that have no instant
        last."""
        found = self.store.recurrences.read(self._excerpts.next_recurrences(RECURRENCES))
        if len(found) < RECURRENCES:
            found = [*islice(self.store.recurrences.statuses(lambda _: None), RECURRENCES)]
        return sorted(found, key=lambda each: (each.next is None, each.next))

    def message(self, message_id: str, queue: str | None) -> MessagePage:
        """The page of a message. NotFound if there is none, UsageError if two queues have one."""
        message = self._inspector.message(message_id, queue)
        kept = self._inspector.recorded(message)
        batch = message.batch if message.batch and self._is_kept(*message.batch) else None
        return MessagePage(self._inspector.now(), message, *kept, batch)

    def _is_kept(self, batch_queue: str, batch_id: str) -> bool:
        try:
            return bool(self.store.batches.batch(batch_id, batch_queue))
        except NotFound:
            return False

    def search(self, text: str = "", header: str = "") -> SearchPage:
        """The page of a search for ``text``, or for ``header``. UsageError for a header that is not NAME=VALUE."""
        page = SearchPage(self._inspector.now(), text, header)
        if text:
            handlers = [name for name in self._excerpts.durations() if text.lower() in name.lower()][:PAGE]
            page = page._replace(messages=self._inspector.with_id(text), handlers=handlers)
        if header:
            try:
                name, value = read_header(header)
            except ValueError as error:
                raise UsageError("header", header, str(error)) from None
            page = page._replace(labelled=self._by_state(SEARCHED, lambda each: each.headers.get(name) == value))
        return page

    def audit(self) -> AuditPage:
        return AuditPage(self._inspector.now(), self.store.audit(AUDITED))

    def past(self, span: PastSpan) -> HistoryPage:
        """The page of a day or a week. The ledger is read whole."""
        now, kept = self._inspector.now(), self._inspector.launches(MOST_LAUNCHES_KEPT)
        begin = now - span.milliseconds
        found = [each for each in kept if each.get("started_ms", 0) > begin]
        oldest = min((each["started_ms"] for each in kept if "started_ms" in each), default=None)
        since = oldest if oldest is not None and oldest > begin and len(kept) >= LAUNCHES_KEPT else None
        return HistoryPage(now, span, found, since, _totals(self._inspector))

    def queue(self, name: str, state: State, skip: int) -> QueuePage:
        """The page of the queue ``name``. NotFound if there is none."""
        counts, now = self._inspector.counts(name), self._inspector.now()
        messages = self._excerpts.messages(state, PAGE + 1, queue=name, skip=skip)
        completions = self._excerpts.completions(name, now - HOUR)
        more, batches = len(messages) > PAGE, self.store.batches.counts([name])[0]
        return QueuePage(now, counts, completions, state, messages[:PAGE], skip, more, batches)

    def batches(self, queue: str, skip: int) -> BatchesPage:
        """The page of the batches of ``queue``: last those that are forgotten first."""
        found = self.store.batches.part(queue, -skip - PAGE, -skip - 1)
        return BatchesPage(self._inspector.now(), queue, self.store.batches.counts([queue])[0], found[::-1], skip)

    def batch(self, queue: str, batch_id: str, first: int = 0) -> BatchPage:
        """The page of a batch. NotFound if there is none."""
        batch, now = self.store.batches.batch(batch_id, queue), self._inspector.now()
        called = [
            message
            for each in batch.callbacks
            if each.state not in (None, WAITING)
            for message in self._inspector.those(each.queue, [id_bytes(each.message_id)])
        ]
        dead, after = self.store.batches.some(batch, "dead", first, PAGE) if batch.dead else ([], None)
        still = [each for each in dead if each.state is State.DEAD]  # a batch is not told of a redrive
        return BatchPage(now, batch, called, still, first, after)

    def dead(self, wanted: Wanted) -> DeadLettersPage:
        """The page of the dead letters wanted. NotFound if there is no such queue."""
        if wanted.queue is not None:
            self._inspector.counts(wanted.queue)
        page, letters = self._letters_wanted(wanted, self._inspector.now())
        ids: dict[str, list[bytes]] = {}
        for letter in letters[:PAGE]:
            ids.setdefault(letter.queue, []).append(id_bytes(letter.id))
        found = {(each.queue, each.id): each for name in ids for each in self._inspector.those(name, ids[name])}
        listed = [found.get((letter.queue, letter.id)) for letter in letters[:PAGE]]
        return page._replace(messages=[each for each in listed if each is not None and each.state is State.DEAD])

    def _letters_wanted(self, wanted: Wanted, now: int) -> tuple[DeadLettersPage, list[Letter]]:
        count = self._letters.count(self._letters.queues(wanted))
        letters = self._letters.last(wanted, LETTERS)
        return DeadLettersPage(now, wanted, count, min(count, LETTERS), groups_of(letters)), letters

    def handler(self, name: str) -> HandlerPage:
        """The page of a handler, even if nothing is known of it: a page about a message far behind may link here."""
        messages = self._by_state(LOOKED_THROUGH, lambda each: each.handler == name)
        paused = name in self._inspector.paused_handlers()
        return HandlerPage(self._inspector.now(), name, self._excerpts.durations().get(name), messages, paused)

    def _by_state(self, looked_through: int, wanted: Callable[[Message], bool]) -> dict[State, list[Message]]:
        found = {state: self._excerpts.messages(state, looked_through) for state in State}
        return {state: [*islice(filter(wanted, messages), PAGE)] for state, messages in found.items()}

    def recurrence(self, name: str) -> RecurrencePage:
        """The page of the recurrence ``name``. NotFound if there is none."""
        status, now = self.store.recurrences.find(name), self._inspector.now()
        rule, upcoming = status.recurrence, list[int]()
        if rule is not None and status.next is not None and status.error is None:
            left = None if rule.times is None else max(0, rule.times - status.enqueued)
            first = epoch_ms(status.next)
            following = rule.instants(first, status.phase_ms)
            upcoming = [*islice(chain([first], following), min(INSTANTS, left or INSTANTS))]
        return RecurrencePage(now, status, upcoming, self.store.recurrences.history(status, OCCURRENCES))


def reading_of(settings: Settings, store: Store) -> PageReader:
    data = settings.data_directory() if settings.is_embedded else None
    return PageReader(store, expected_of(settings), data)


def _totals(inspector: Inspector) -> list[HandlerTotals]:
    totals = inspector.totals()
    settled: dict[str, Counter[str]] = {}
    for (_, handler, outcome), number in totals.settled.items():
        if handler:
            settled.setdefault(handler, Counter())[outcome] += number
    found = []
    for name, counts in settled.items():
        took = totals.durations.get(name)
        handled = sum(took.counts.values()) if took else 0
        mean = took.total / handled if took and handled else None
        first = (counts["completed"], counts["retried"], counts["dead"])
        found.append(HandlerTotals(name, *first, counts.total() - sum(first), mean))
    return sorted(found, key=lambda each: (-each.completed, each.name))[:HANDLERS]
