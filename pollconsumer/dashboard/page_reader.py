"""What each page shows, read from the store. Every read is bounded, however many messages there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace

from pollconsumer.core.errors import NotFound, UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import read_header
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.dashboard.excerpts import Excerpts, Letter, Wanted, groups_of
from pollconsumer.interface.settings.model import Settings
from pollconsumer.store.leases import LAUNCHES_KEPT, MOST_LAUNCHES_KEPT
from pollconsumer.store.reading.batch_reader import WAITING
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records.rows import id_bytes
from pollconsumer.store.recurrences import RecurrenceStatus
from pollconsumer.store.store import Store
from pollconsumer.watching.examiner import Examiner, expected_of
from pollconsumer.watching.facts import Expected
from pollconsumer.watching.findings import findings_of

HOUR = 3_600_000
"""An hour in milliseconds: the time that the pictures cover."""
SHOWN = 10
"""Number of messages of a state that the first page shows."""
PAGE = 50
"""Number of messages on a page that lists messages."""
LOOKED_THROUGH = 200
"""Number of messages in each state that are searched for those of a handler."""
SEARCHED = 1000
"""Number of messages in each state that are searched for those with a header."""
LETTERS = 500
"""Number of dead letters whose errors are grouped."""
RECURRENCES = 200
AUDITED = 500
QUEUES_SAMPLED = 20
HANDLERS = 50
"""Number of handlers whose totals are shown."""
INSTANTS, OCCURRENCES = 5, 20
"""How many coming instants, and how many past occurrences, the page of a recurrence shows."""


Page = SimpleNamespace
"""The values of a page's template, by name. Each page has ``now``: the server's clock, in epoch ms."""


class PastSpan(StrEnum):
    DAY = "day"
    WEEK = "week"

    @property
    def milliseconds(self) -> int:
        return 86_400_000 * (1 if self is PastSpan.DAY else 7)


class PageReader:
    def __init__(self, store: Store, expected: Expected, data: Path | None) -> None:
        """``expected``, ``data``: as in `Examiner`."""
        self.store = store
        self._expected, self._data = expected, data
        self._inspector, self._excerpts = store.inspector, Excerpts(store)

    def front(self) -> Page:
        """The first page. Values: ``launches``: those of the last hour, newest first; ``completions``: those of that
        hour, by queue, for the queues that have completed most."""
        facts = Examiner(self.store).facts(self._expected, self._data)
        overview = self._inspector.overview()
        since = facts.now - HOUR
        busiest = sorted(overview.queues, key=lambda queue: queue.completed, reverse=True)[:QUEUES_SAMPLED]
        return Page(
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
        """The recurrences that are due next, or all if there are few. Those without a next instant come last."""
        found = self.store.recurrences.read(self._excerpts.next_recurrences(RECURRENCES))
        if len(found) < RECURRENCES:
            found = [*islice(self.store.recurrences.statuses(lambda _: None), RECURRENCES)]
        return sorted(found, key=lambda each: (each.next is None, each.next))

    def message(self, message_id: str, queue: str | None) -> Page:
        """The page of a message. Value ``batch``: queue and id of its batch, if that is still stored. NotFound if there
        is no such message, UsageError if two queues have one."""
        message = self._inspector.message(message_id, queue)
        checkpoint, recorded = self._inspector.recorded(message)
        batch = None
        with suppress(NotFound):
            batch = message.batch and self.store.batches.batch(*message.batch[::-1]) and message.batch
        return Page(now=self._inspector.now(), message=message, checkpoint=checkpoint, recorded=recorded, batch=batch)

    def search(self, text: str = "", header: str = "") -> Page:
        """The page of a search for ``text``, or for ``header``. Values: ``messages``: those with the id ``text``;
        ``handlers``: those with ``text`` in their name that have handled messages; ``labelled``: messages with
        ``header``, by state, among SEARCHED of each state. UsageError for a header that is not NAME=VALUE."""
        page = Page(now=self._inspector.now(), text=text, header=header)
        if text:
            page.handlers = [name for name in self._excerpts.durations() if text.lower() in name.lower()][:PAGE]
            page.messages = self._inspector.with_id(text)
        if header:
            try:
                name, value = read_header(header)
            except ValueError as error:
                raise UsageError("header", header, str(error)) from None
            page.labelled = self._by_state(SEARCHED, lambda each: each.headers.get(name) == value)
        return page

    def audit(self) -> Page:
        return Page(now=self._inspector.now(), audit=self.store.audit(AUDITED))

    def past(self, span: PastSpan) -> Page:
        """The page of a day or a week, by the whole ledger. Value ``since``: if the ledger no longer has all launches
        of ``span``, the start of its oldest launch in epoch ms; else None."""
        now, kept = self._inspector.now(), self._inspector.launches(MOST_LAUNCHES_KEPT)
        begin = now - span.milliseconds
        found = [each for each in kept if each.get("started_ms", 0) > begin]
        oldest = min((each["started_ms"] for each in kept if "started_ms" in each), default=None)
        since = oldest if oldest is not None and oldest > begin and len(kept) >= LAUNCHES_KEPT else None
        return Page(now=now, span=span, launches=found, since=since, totals=_totals(self._inspector))

    def queue(self, name: str, state: State, skip: int) -> Page:
        """The page of the queue ``name``. Values: ``messages``: some in ``state``, from number ``skip`` on; ``more``:
        whether others follow; ``batches``: the number of the queue's batches. NotFound if there is no such queue."""
        counts, now = self._inspector.counts(name), self._inspector.now()
        messages = self._excerpts.messages(state, PAGE + 1, queue=name, skip=skip)
        return Page(
            now=now,
            counts=counts,
            completions=self._excerpts.completions(name, now - HOUR),
            state=state,
            messages=messages[:PAGE],
            skip=skip,
            more=len(messages) > PAGE,
            batches=self.store.batches.counts([name])[0],
        )

    def batches(self, queue: str, skip: int) -> Page:
        """The page of the batches of ``queue``. Values: ``batches``: some of them, from number ``skip`` on; those that
        are deleted first come last; ``all``: how many the queue has."""
        found, kept = self.store.batches.part(queue, -skip - PAGE, -skip - 1), self.store.batches.counts([queue])[0]
        batches = [batch for _, batch in reversed(found)]
        return Page(now=self._inspector.now(), queue=queue, all=kept, batches=batches, skip=skip)

    def batch(self, queue: str, batch_id: str, first: int = 0) -> Page:
        """The page of a batch. Values: ``called``: those of its callbacks that are stored; ``dead``: dead members, from
        the number ``first`` on; ``after``: where the next page begins. NotFound if there is no such batch."""
        batch, now = self.store.batches.batch(batch_id, queue), self._inspector.now()
        called = [
            message
            for each in batch.callbacks
            if each.state not in (None, WAITING)
            for message in self._inspector.those(each.queue, [id_bytes(each.message_id)])
        ]
        dead, after = self.store.batches.some(batch, "dead", first, PAGE) if batch.dead else ([], None)
        still = [each for each in dead if each.state is State.DEAD]  # a redrive is not reported to a batch
        return Page(now=now, batch=batch, called=called, dead=still, first=first, after=after)

    def dead(self, wanted: Wanted) -> Page:
        """The page of the dead letters that match ``wanted``. Values: ``all``: how many dead letters the queues in
        question have; ``groups``: those among the last ``looked_at`` that match, by handler and error; ``messages``:
        the newest of them. NotFound if there is no such queue."""
        if wanted.queue is not None:
            self._inspector.counts(wanted.queue)
        page, letters = self._letters_wanted(wanted, self._inspector.now())
        ids: dict[str, list[bytes]] = {}
        for letter in letters[:PAGE]:
            ids.setdefault(letter.queue, []).append(id_bytes(letter.id))
        found = {(each.queue, each.id): each for name in ids for each in self._inspector.those(name, ids[name])}
        listed = [found.get((letter.queue, letter.id)) for letter in letters[:PAGE]]
        page.messages = [each for each in listed if each is not None and each.state is State.DEAD]
        return page

    def _letters_wanted(self, wanted: Wanted, now: int) -> tuple[Page, list[Letter]]:
        count = self._excerpts.count_dead(self._excerpts.queues(wanted))
        letters = self._excerpts.last_dead(wanted, LETTERS)
        looked_at, groups = min(count, LETTERS), groups_of(letters)
        return Page(now=now, wanted=wanted, all=count, looked_at=looked_at, groups=groups), letters

    def handler(self, name: str) -> Page:
        """The page of a handler, even of an unknown one, since pages of messages link to it. Values: ``messages``: up
        to PAGE of the handler's in each state, among LOOKED_THROUGH; ``durations``: None if none was measured."""
        messages = self._by_state(LOOKED_THROUGH, lambda each: each.handler == name)
        paused, durations = name in self._inspector.paused_handlers(), self._excerpts.durations().get(name)
        return Page(now=self._inspector.now(), name=name, durations=durations, messages=messages, paused=paused)

    def _by_state(self, looked_through: int, wanted: Callable[[Message], bool]) -> dict[State, list[Message]]:
        found = {state: self._excerpts.messages(state, looked_through) for state in State}
        return {state: [*islice(filter(wanted, messages), PAGE)] for state, messages in found.items()}

    def recurrence(self, name: str) -> Page:
        """The page of the recurrence ``name``. Values: ``next``: its next instants in epoch ms; ``history``: its last
        occurrences, newest first. NotFound if there is none."""
        status, now = self.store.recurrences.find(name), self._inspector.now()
        rule, upcoming = status.recurrence, list[int]()
        if rule is not None and status.next is not None and status.error is None:
            left = None if rule.times is None else max(0, rule.times - status.enqueued)
            first = epoch_ms(status.next)
            following = rule.instants(first, status.phase_ms)
            upcoming = [*islice(chain([first], following), min(INSTANTS, left or INSTANTS))]
        history = self.store.recurrences.history(status, OCCURRENCES)
        return Page(now=now, status=status, next=upcoming, history=history)


def reading_of(settings: Settings, store: Store) -> PageReader:
    data = settings.data_directory() if settings.is_embedded else None
    return PageReader(store, expected_of(settings), data)


def _totals(inspector: Inspector) -> list[Page]:
    """The totals of each handler since the store began: its messages by outcome, and ``mean_seconds``, their mean
    duration; None if none was measured."""
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
        named = {outcome: counts[outcome] for outcome in ("completed", "retried", "dead")}
        others = counts.total() - sum(named.values())
        found.append(Page(name=name, **named, others=others, mean_seconds=mean))
    return sorted(found, key=lambda each: (-each.completed, each.name))[:HANDLERS]
