"""The contexts that a launch gives its handlers, and how it answers their questions and stores their reports.

Lines that handlers log and print are stored while an attempt runs, and at its end. The latter costs no round trip: the
step that settles the message also stores them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from pollconsumer.core.errors import PollConsumerError, StoreUnreachable, UsageError
from pollconsumer.core.messages import continuation as continuations
from pollconsumer.core.messages.codec import encoded_json
from pollconsumer.core.messages.message import NewMessage, decoded_options
from pollconsumer.core.messages.message_steps import Progress, StepEntry
from pollconsumer.core.messages.payloads import Malformed, decode_payload
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.core.users_code import described
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery, Situation
from pollconsumer.runtime.handling.handler import Handler, hooks_before_enqueue
from pollconsumer.runtime.handling.kept_lines import KeptLines, Tail
from pollconsumer.runtime.handling.shield import Shield
from pollconsumer.runtime.launch.board import Flight
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.new_messages import Defaults
from pollconsumer.runtime.system.own_threads import Started, start_thread
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records import rows
from pollconsumer.store.records.occurrences import PreviousOccurrence
from pollconsumer.store.records.reservations import CommonFields, Reservation
from pollconsumer.store.records.steps import LogEntry, Reports

MOST = 100
"""Maximum number of reserved messages for which the last occurrences are read in one round trip."""
FRESH = 0.05
"""Seconds for which a last occurrence that was read is used. Later, another launch may have completed a newer one."""
CARRIED_WITHIN = 0.1
"""Seconds that a report waits for a step to store it. After that, it is stored separately."""


class Predecessors:
    def __init__(self, launch: Launch, reserved: Iterable[Reservation]) -> None:
        """``reserved``: messages reserved and not begun. Their last occurrences are read in the same round trip."""
        self._launch, self._reserved = launch, reserved
        self.found: dict[tuple[str, bytes], PreviousOccurrence | None] = {}
        """The last occurrences that were read, by queue and recurrence, until this launch completes an occurrence."""
        self._read_at = 0.0

    def of(self, reservation: Reservation) -> PreviousOccurrence | None:
        """The last completed occurrence of this message's recurrence; None if there is none, or it is no occurrence."""
        occurrence = reservation.occurrence
        if occurrence is None:
            return None
        which = reservation.queue, occurrence.recurrence
        if which not in self.found or self._launch.clock() - self._read_at > FRESH:
            # In the same round trip for messages reserved ahead. They are copied first, since another thread may return
            # some.
            ahead = [each for each in [*self._reserved] if each.queue == reservation.queue]
            near = reservation, *ahead[:MOST]
            names = list(dict.fromkeys(each.occurrence.recurrence for each in near if each.occurrence is not None))
            self._read_at = self._launch.clock()
            found = self._launch.store.previous(reservation.queue, names)
            self.found = {(reservation.queue, name): each for name, each in zip(names, found, strict=True)}
        return self.found.pop(which)


class ProgressReporter:
    """Stores what handlers report: the progress of messages, and logged lines. ``every``: seconds between two writes.
    With 0 each report is stored at once, in the handler's thread."""

    def __init__(self, launch: Launch, every: float) -> None:
        self._launch, self._every = launch, every
        self._reports: dict[str, dict[bytes, Progress | LogEntry]] = {}
        self._lock, self._storing = threading.Lock(), threading.Lock()
        self._reported = threading.Event()
        self._thread: Started | None = None
        self._store: RedisStore | None = None
        self.has_reported = False
        """Whether a handler of this launch has reported anything."""

    def report(self, reservation: Reservation, progress: Progress) -> None:
        self.add(reservation, reservation.id, progress)

    def add(self, reservation: Reservation, name: bytes, entry: Progress | LogEntry, *, soon: bool = True) -> None:
        """Report ``entry``, in place of an unstored one with the same ``name``. A thread stores it soon or, unless
        ``soon``, the next step does."""
        with Shield():
            self.has_reported = True
            with self._lock:
                self._reports.setdefault(reservation.queue, {})[name] = entry
            if not soon:
                return
            if not self._every:
                self._store_all()
                return
            if self._thread is None:
                self._thread = start_thread("progress", self._serve)
            self._reported.set()

    @contextmanager
    def carried(self, lost: Set[str] = frozenset()) -> Iterator[Reports | None]:
        """Yields the reports that are not stored yet, or None. The caller must store them within the block. Reports for
        ``lost`` queues are left out; they, and those that the caller could not store, are stored later. No report is
        stored after a newer one."""
        if self._reports or self._storing.locked():
            with self._storing:
                reports = self._taken()
                self._keep({queue: each for queue, each in reports.items() if queue in lost})
                carried = {queue: each for queue, each in reports.items() if queue not in lost}
                try:
                    yield carried
                except (StoreUnreachable, Unanswered):
                    self._keep(carried)
                    raise
        else:
            yield None

    def _keep(self, reports: Reports) -> None:
        """Put back reports that were not stored, except those that newer ones have replaced."""
        with self._lock:
            for queue, each in reports.items():
                self._reports[queue] = {**each, **self._reports.get(queue, {})}

    def _taken(self) -> Reports:
        with self._lock:
            reports, self._reports = self._reports, {}
            return reports

    def _serve(self) -> None:
        while True:
            self._reported.wait()
            time.sleep(CARRIED_WITHIN)
            self._reported.clear()
            if self._store_all():
                time.sleep(self._every - CARRIED_WITHIN)

    def _store_all(self) -> bool:
        """Store all reports. Returns whether there were any. If the store does not answer, this thread or a later step
        stores them."""
        with self._storing:
            reports = self._taken()
            if not reports:
                return False
            if self._store is None:
                self._store = RedisStore(self._launch.bare_wire(), self._launch.store.keys.namespace)
            try:
                self._store.report(self._launch.claim, reports)
            except (StoreUnreachable, Unanswered):
                self._keep(reports)  # GUARD the last report of a message
                self._reported.set()
            except PollConsumerError:
                pass  # for example, a newer launch has the lease
            return True


class Deliveries:
    def __init__(
        self,
        launch: Launch,
        handlers: Mapping[str, Handler],
        lock: AbstractContextManager[object],
        reporting: ProgressReporter,
        predecessors: Predecessors,
    ) -> None:
        """``lock``: held during a call to the store, since several handlers may call at once."""
        self._reporting, self._predecessors = reporting, predecessors
        self._launch, self._store, self._handlers, self._lock = launch, launch.store, handlers, lock
        self._own_store: RedisStore | None = None
        self._namespace = launch.store.keys.namespace
        self._shared: _Shared | None = None
        """The part of the last context that is the same for all messages of its `CommonFields`."""

    def context_of(self, reservation: Reservation) -> LaunchContext:
        shared = self._shared
        if shared is None or shared.common is not reservation.common:
            shared = self._shared = self._shared_by(reservation.common)
        delivery = shared.delivery_of(reservation)
        if reservation.has_checkpoint:
            stored, recorded = self._store.recorded(reservation)
            delivery = delivery._replace(recorded=recorded)
            with suppress(Malformed):  # corrupt
                delivery = delivery._replace(state=decode_payload(stored or b""))
        if (occurrence := reservation.occurrence) is not None:
            if (before := self._predecessors.of(reservation)) is not None:
                previous = epoch_ms(before.instant), epoch_ms(before.completed), before.result
                delivery = delivery._replace(previous=previous)
            delivery = delivery._replace(occurrence=occurrence.instant)
        return LaunchContext(delivery, shared.situation, reservation)

    def context_of_call(self, reservations: Sequence[Reservation]) -> tuple[LaunchContext, list[Delivery]]:
        """The context of a bulk call, and the deliveries of its messages. A bulk call's delivery has no checkpoint and
        no previous occurrence."""
        by_fields = {each.common: self._shared_by(each.common) for each in reservations}
        deliveries = [by_fields[each.common].delivery_of(each) for each in reservations]
        asked = self._launch.progress.stops.asked
        situation = by_fields[reservations[0].common].situation._replace(
            stop_asked=lambda _: all(map(asked, reservations))
        )
        return LaunchContext(deliveries[0], situation), deliveries

    def _shared_by(self, common: CommonFields) -> _Shared:
        headers = None
        if common.options:
            with suppress(Malformed):
                headers = dict(decoded_options(common.options)[0].headers)
        launch, handler = self._launch, self._handlers.get(common.handler)
        situation = Situation(
            partial(launch.end.ends_by, limit=None if handler is None else handler.timeout),
            self._cancelled,
            self._save,
            self._defaults_of,
            launch.clock,
            self._send,
            self._reporting.report,
            hooks_before_enqueue(handler),
            launch.progress.stops.asked,
            None if handler is not None and handler.at_most_once else self._record,
            partial(self._ask_batch, common.continuation),
            None if handler is None else handler.codec,
            launch.progress.flight.extend,
        )
        numbers = rows.attempts(common.row), rows.generation(common.row), rows.fence(common.row)
        shown = common.reserved_at, common.shown_at
        delivery = Delivery(self._namespace, common.queue, "", common.handler, *numbers, headers=headers, shown=shown)
        return _Shared(common, delivery, situation)

    def _ask_batch(self, continuation: bytes, what: str, *question: Any) -> Any:
        from pollconsumer.runtime.handling.handler_batches import answer_about, first_number  # few handlers ask
        from pollconsumer.store.store import Store

        with self._store_of_handlers() as store:
            if what == "number":
                return first_number(store.producer, continuation, *question)
            return answer_about(Store(store.wire, store.keys.namespace), what, *question)

    def _save(self, reservation: Reservation, state: bytes) -> None:
        with self._store_of_handlers() as store, self._reporting.carried() as reports:
            store.checkpoint(self._launch.claim, reservation, state, reports)

    def _record(self, reservation: Reservation, entry: StepEntry) -> None:
        with self._store_of_handlers() as store, self._reporting.carried() as reports:
            if entry.called:
                _refuse_own_order_key(reservation, entry.called)
                store.enqueue(entry.called)
            store.record(self._launch.claim, reservation, entry, reports)

    def _send(self, message: NewMessage) -> str:
        with self._store_of_handlers() as store:
            return store.enqueue([message])[0].id

    @contextmanager
    def _store_of_handlers(self) -> Iterator[RedisStore]:
        """The store, on a connection that only handlers and hooks use: they may run in other threads, and be
        interrupted anywhere."""
        with self._lock:
            if self._own_store is None:
                self._own_store = RedisStore(self._launch.bare_wire(), self._store.keys.namespace)
            yield self._own_store

    def _cancelled(self) -> bool:
        return self._launch.interrupted() or not self._launch.lease_is_trusted()

    def _defaults_of(self, handler: str) -> Defaults:
        return self._handlers[handler].defaults if handler in self._handlers else Defaults()


def _refuse_own_order_key(reservation: Reservation, called: Iterable[NewMessage]) -> None:
    """Raise UsageError if a message in ``called`` has the order key of ``reservation``: both would wait for ever."""
    _, _, order_key = reservation.concurrency_key.partition(b"\0")
    for each in called:
        if order_key and (each.queue, each.order_key.encode()) == (reservation.queue, order_key):
            rule = "it would wait for this message, and this one for it: leave out one of both keys"
            raise UsageError("context.call", f"{each.handler} with this message's order_key {each.order_key}", rule)


class _Shared(NamedTuple):
    """The parts of a context that are the same for messages with ``common`` fields. ``delivery`` has no id yet."""

    common: CommonFields
    delivery: Delivery
    situation: Situation

    def delivery_of(self, reservation: Reservation) -> Delivery:
        """The delivery of one message, without its checkpoint and the last occurrence, which are read separately."""
        delivery = self.delivery._replace(id=reservation.name)
        with suppress(Malformed, KeyError):  # corrupt
            return _with_continuation(delivery, self.common.continuation) if self.common.continuation else delivery
        return delivery


def _with_continuation(delivery: Delivery, stored: bytes) -> Delivery:
    """``delivery`` with its batch and previous message, which are read from ``stored``, its continuation."""
    continuation, _ = continuations.decoded(stored)
    batch: tuple[str, str, int | None] | None = None
    previous = None
    if continuation.called_by:
        batch = continuation.called_by, delivery.id.rpartition(":")[0], None
    elif continuation.batch and (member := continuations.member_of(delivery.id)):
        batch = continuation.batch, *member
    if before := continuation.previous:
        previous = before["at"], before["at"], before["result"], before["id"], before["state"]
    return delivery._replace(batch=batch, previous=previous)


LINES_EVERY = 5.0
"""Seconds between two looks for new lines of running handlers."""
LEAST_OF_CALL = 256
"""Least bytes of a bulk call's lines that are stored with each of its messages."""


class LineReports:
    def __init__(
        self,
        lines: KeptLines,
        flight: Flight,
        handlers: Mapping[str, Handler],
        reporter: ProgressReporter,
        call_of: Callable[[Reservation], Sequence[Reservation]],
    ) -> None:
        """``call_of``: returns the messages that share a call with a message, itself included."""
        self._lines, self._flight, self._handlers, self._reporter = lines, flight, handlers, reporter
        self._call_of, self._pid = call_of, os.getpid()
        self._lock = Lock()
        self._thread: Started | None = None
        lines.begun = self._begin

    def end(self, reservation: Reservation) -> None:
        """The attempt has ended: report its new lines, and drop its entry."""
        with self._lock:
            if (text := self._lines.unreported(reservation)) is not None:
                self._report(reservation, text)
            self._lines.tails.pop(reservation, None)

    def look(self) -> None:
        """Report new lines of running handlers. Drop lines from threads whose attempts have ended."""
        in_flight = set(self._flight.in_flight())
        for message in [*self._lines.tails]:
            with self._lock:
                if not isinstance(message, Reservation) or message not in in_flight:
                    self._lines.tails.pop(message, None)
                elif (text := self._lines.unreported(message)) is not None:
                    self._report(message, text, soon=True)

    def _begin(self) -> None:
        """Start the thread that looks for lines, unless it runs, or this process is a fork."""
        if self._thread is None and os.getpid() == self._pid:
            with Shield(), suppress(RuntimeError):  # no thread can be started: lines are stored at the attempts' ends
                self._thread = start_thread("lines", self._serve)

    def _serve(self) -> None:
        while True:
            time.sleep(LINES_EVERY)
            self.look()

    def _report(self, reservation: Reservation, text: str, *, soon: bool = False) -> None:
        messages, most = self._call_of(reservation), self._lines.most
        if len(messages) > 1:
            # All messages of a call together keep about as much as a message that is handled alone.
            part = Tail(max(most // len(messages), LEAST_OF_CALL))
            part.add(text)
            text = part.text()
        encoded = self._encoded(text, reservation.handler)
        for each in messages:
            entry = LogEntry(f"[{each.reserved_at},{each.attempt},", encoded, most)
            self._reporter.add(each, b"%b\n%d" % (each.id, each.reserved_at), entry, soon=soon)

    def _encoded(self, text: str, handler: str) -> str:
        """``text`` as JSON, encoded by the codec of the handler's application, if it has one."""
        known = self._handlers.get(handler)
        try:
            data = json.dumps(text, ensure_ascii=False).encode()
            return encoded_json(data, None if known is None else known.codec).decode()
        except Exception as error:  # it must not be stored in plain text
            return json.dumps(f"[lines left out: the codec raised {described(error).partition(':')[0]}]\n")
