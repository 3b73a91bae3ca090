"""Enqueueing: ids of messages, the writes of a producer, producers that wait for replicas, ids of follow-ups of a
message or batch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, compress, groupby, islice, repeat
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.errors import (
    CannotCreate,
    Conflict,
    NodeLost,
    NotReplicated,
    OutcomeUnknown,
    QueueFull,
    StoreUnreachable,
    UsageError,
)
from pollconsumer.core.messages import continuation as continuations
from pollconsumer.core.messages.message import NO_OPTIONS, OPTIONS, REPLACES, NewMessage, replaces
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.patience import SYSTEM_CLOCKS, Clocks
from pollconsumer.store.client.replies import refuse_without
from pollconsumer.store.client.wire import Strict, Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records import rows
from pollconsumer.store.rights import PRODUCER, REPLACING, demand
from pollconsumer.store.server import TIME, to_ms

if TYPE_CHECKING:
    from pollconsumer.store.queues.demand import LaunchDemand

Trip = list[list[NewMessage]]
"""Pages that are sent in one write. Each is for one queue."""

ENQUEUE_PAGE = 75
"""Messages per script. A hundred scheduled ones may block the server for more than 5 ms, while its tables grow."""
ENQUEUE_PAGES = 4
"""Scripts per round trip."""
ENQUEUE_BYTES = 1 << 20
MOST_QUEUES = 2000
"""Number of queues about which a producer remembers something. About others it asks again."""
ID_MEMORY_MS = 600_000
"""Minimum time for which the ids of forgotten messages are remembered, in ms: see ``lua/parts/id_memory.lua``."""
MOST_REMEMBERED = 3_000_000
"""Maximum number of ids in each of two generations. If more messages are forgotten in that time, their ids are
remembered for less time."""
_WITHOUT, _WITH_OUTBOX, _WITH_ANSWER, _WITH_LINE = -6, -5, -4, -2
"""Ends of the keys of `enqueue.lua`: for most messages, with an outbox, with an answer to keep, and with a line."""
REPEAT_WITHIN_MS = ID_MEMORY_MS // 2
"""An enqueue may be repeated for so long after the first call, in ms. Ids are remembered for longer."""
_ID, _PAYLOAD, _DIGEST = map(attrgetter, ("id", "payload", "digest"))
_HELD, _REMEMBERED = ("records", "rows"), ("id_memory", "id_memory_before")
MessagePlace = tuple[str, str]
"""A queue, and the id of a message there."""


class _Identifiers:
    """Ids that sort by time: 48 bits of milliseconds and 64 random bits, which are incremented within a millisecond."""

    def __init__(self) -> None:
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        self._millisecond = self._number = 0

    def next(self) -> str:
        millisecond = time.time_ns() // 1_000_000
        if millisecond == self._millisecond:
            self._number += 1
        else:
            self._millisecond = millisecond
            self._number = millisecond << 64 | int.from_bytes(os.urandom(8), "big") >> 1
        return self._number.to_bytes(14, "big").hex()


new_id = _Identifiers().next


class Enqueued(NamedTuple):
    """The id of the message. ``duplicate``: the store already had a message with that id, or with its unique key."""

    id: str
    duplicate: bool


_enqueued: Callable[[tuple[str, bool]], Enqueued] = partial(tuple.__new__, Enqueued)
"""Makes an `Enqueued` of its fields, in a quarter of the time that `Enqueued` itself takes."""


class Origin(NamedTuple):
    """An entry of an outbox, and the position in it of the first message."""

    queue: str
    number: int
    position: int


class Producer:
    rights = PRODUCER
    demand: LaunchDemand | None = None
    """Has a launch started if nobody serves a queue; None if launches do not start on demand."""
    most_ready: Mapping[str, int] = MappingProxyType({})
    """How many messages may be ready, by queue. It has only queues with a limit."""

    def __init__(self, wire: Wire, namespace: str, clocks: Clocks = SYSTEM_CLOCKS) -> None:
        self.wire, self._clocks = wire, clocks
        self.keys = Keys(namespace)
        self._calls = 0
        """The number of the current call, or of the next one. A repetition has the number of its first try."""
        self._number, self._pid = "", 0
        """A number that distinguishes this producer from all others, and the process that has drawn it."""
        self._registered: set[str] = set()
        self._beginnings: dict[str, Command] = {}
        """The beginning of the command for a message without options, with script and keys, by registered queue."""
        self._replacing: set[str] = set()

    def enqueue_one(self, message: NewMessage) -> Enqueued:
        """Enqueue one message. A message without options is enqueued by a quick script, which checks less.

        The first message of a queue goes through the general script, which prevents a few small records from becoming a
        list that each look-up searches. So does every repetition, since it may find the id.
        """
        queue = message.queue
        if message[OPTIONS] != NO_OPTIONS or queue not in self._registered or queue in self.most_ready:
            self.refuse_followed([message])
            return self.enqueue([message])[0]
        beginning = self._beginnings.get(queue)
        if beginning is None:
            beginning = self._beginnings[queue] = self.wire.queue_command("enqueue_new", self.keys, queue, ())
        trip, record = [[message]], rows.record_head(message.handler) + message.payload
        command = *beginning, record, message.id
        (held,) = self._call([command], trip, None, 0)  # a repetition is answered by `enqueue.lua`
        return self._held(trip, trip[0], held, 0)[0]

    def refuse_followed(self, messages: Iterable[NewMessage]) -> None:
        """Raise UsageError if a queue already has an id that a link or a callback of a new message would get, if a user
        chose the message's id: theirs are made of it. The link or callback would be taken for a duplicate, and
        dropped."""
        for message in filter(_DIGEST, messages):
            if message.continuation:
                continuation, _ = continuations.decoded(message.continuation.encode())
                following = [
                    each for each in (*continuation.links, continuation.then, continuation.failed) if each is not None
                ]
                paths = [(each["queue"], each["id"]) for each in following]
                refuse_taken(self.wire, self.keys, "message", (message.queue, message.id), paths)

    def enqueue(self, messages: Sequence[NewMessage], origin: Origin | None = None) -> list[Enqueued]:
        """Accept messages, in order, as `enqueue_pages` does. An error has the ids that were ``accepted`` before it."""
        results: list[Enqueued] = []
        try:
            for accepted in self.enqueue_pages(messages, origin):
                results += accepted
        except (StoreUnreachable, CannotCreate, Conflict, QueueFull) as error:
            error.accepted = [entry.id for entry in results]
            raise
        return results

    def enqueue_pages(self, messages: Sequence[NewMessage], origin: Origin | None = None) -> Iterator[list[Enqueued]]:
        """Accept messages, in order. Each page for one queue is atomic.

        Accepting is idempotent, so it is repeated after a lost reply. OutcomeUnknown has the ids of a round trip that
        was not answered within the budget. StoreUnreachable if nothing was sent. NotReplicated if messages are
        accepted, but too few replicas confirmed in time. Conflict if an id belongs to a message with another handler or
        payload. QueueFull if a queue would have too many messages ready. After Conflict and QueueFull that page, and
        later pages, are not accepted.
        """
        done = 0
        for trip in _round_trips(messages, self.most_ready):
            for page in trip:
                queue = page[0].queue
                self.register(queue)
                if replaces(page[0]) and not origin and queue not in self._replacing:
                    demand(self.wire, REPLACING, self.keys.queue(queue, "rows"))  # GUARD rights to replace
                    if len(self._replacing) >= MOST_QUEUES:
                        self._replacing.clear()
                    self._replacing.add(queue)
            answers = self._send(trip, origin, done)
            for page, held in zip(trip, answers, strict=True):
                yield self._held(trip, page, held, done)
                done += len(page)

    def enqueue_sent_on(self, entries: Iterable[tuple[Origin, Sequence[NewMessage]]]) -> list[NewMessage]:
        """Accept the messages of several entries of an outbox, in order, in one round trip. None of them may conflict.
        Returns the messages that their queues had already."""
        commands, pages = list[tuple[Any, ...]](), list[list[NewMessage]]()
        for origin, messages in entries:
            done = 0
            for page in pages_of(messages):
                self.register(page[0].queue)
                commands += self._commands([page], origin, done, "")
                pages.append(page)
                done += len(page)
        return list(chain.from_iterable(map(compress, pages, self.wire.all(commands) if commands else [])))

    def _held(self, trip: Trip, page: list[NewMessage], held: int | list[bytes], done: int) -> list[Enqueued]:
        """Reads the answer of the script to a page. Raises the errors of `enqueue_pages`."""
        if held == 0:
            raise OutcomeUnknown(ids_of(trip))
        if isinstance(held, int) and held < 0:
            queue, coming = page[0].queue, sum(each.due is None and not each.delay for each in page)
            fix = f"max_ready is {self.most_ready[queue]}: try again later"
            raise QueueFull("queue is full", f"{queue}, {-1 - held} ready, {coming} more", fix)
        if isinstance(held, int):
            conflicting = page[held - 1].id
            error = Conflict(
                "message id is taken", conflicting, "by a message with another handler or payload: choose another id"
            )
            error.id, error.at = conflicting, done + held - 1
            raise error
        if any(held):
            pairs = zip(page, held, strict=True)
            results = [Enqueued(holder.decode() or message.id, bool(holder)) for message, holder in pairs]
        else:  # all are new: `held` is empty
            results = list(map(_enqueued, zip(map(_ID, page), repeat(False))))
        self.wire.last_acknowledged = page[-1].queue, results[-1].id, False, self._clocks.monotonic()
        return results

    def _send(self, trip: Trip, origin: Origin | None, done: int) -> list[Any]:
        """The answers to one round trip, after ``done`` messages of the same call."""
        return self._call(self._commands(trip, origin, done, ""), trip, origin, done)

    def _call(
        self,
        commands: list[tuple[Any, ...]],
        trip: Trip,
        origin: Origin | None,
        done: int,
        awaiting: Sequence[tuple[Any, ...]] = (),
        within: float = 0.0,
    ) -> list[Any]:
        """The answers to ``commands``. A repetition sends what `_commands` makes of the messages, and ``awaiting``.

        The store refuses a repetition once it may have forgotten the ids. It decides that by its own clock, since this
        process may be suspended at any point. Repetitions from an outbox do not depend on ids.
        """
        began = self._clocks.boot_time()
        looks: Sequence[Command] = ()
        if self.demand is not None:
            looks, at = self.demand.looks(chain.from_iterable(trip)), len(commands) - len(awaiting)
            commands[at:at] = looks

        def bound() -> None:
            (now,) = self.wire.once([TIME])
            age_ms = int((self._clocks.boot_time() - began) * 1000)
            until = to_ms(now) + REPEAT_WITHIN_MS - age_ms
            commands[:] = [*self._commands(trip, origin, done, f"@{until}"), *looks, *awaiting]

        try:
            answers = self.wire.all(commands, on_repeat=bound, blocking=within)  # GUARD a repetition has an end
        except NodeLost:  # in a launch that sends the entries of an outbox
            raise
        except StoreUnreachable as error:
            if error.sent:
                raise OutcomeUnknown(ids_of(trip)) from None
            raise
        finally:
            self._calls += 1  # GUARD a call has no number of another
        if looks and self.demand is not None:
            self.demand.ensure_launch(self.wire, answers[at : at + len(looks)])
            del answers[at : at + len(looks)]
        if self.wire.repeated:
            for page, held in zip(trip, answers, strict=False):
                if isinstance(held, list) and held:  # what it found, without what the first try has accepted
                    held[:] = [
                        b"" if found.decode() == message.id and not _may_be_of_another(message) else found
                        for message, found in zip(page, held, strict=True)
                    ]
        return answers

    def _commands(self, trip: Trip, origin: Origin | None, done: int, bound: str) -> list[tuple[Any, ...]]:
        script, commands = self.wire.scripts["enqueue"], []
        for number, page in enumerate(trip):
            source = f"{origin.queue} {origin.number} {origin.position + done}" if origin else bound
            names = self.keys.names_for(script, page[0].queue)
            arguments, options = _as_arguments(page)
            keeps_answer = options and not origin and any(map(_may_be_of_another, page))
            if keeps_answer:
                source = f"{bound}#{self._calls}"
                if self._pid != os.getpid():  # GUARD a child has a number of its own
                    self._number, self._pid = os.urandom(8).hex(), os.getpid()
                names[_WITH_ANSWER - 1] += f":{self._number}:{number}"
            most = None if origin else self.most_ready.get(page[0].queue)
            if most is not None:
                options += (0, "", "", most)
            if not replaces(page[0]):
                last = _WITH_ANSWER if keeps_answer else _WITHOUT
                del names[_WITH_OUTBOX if origin else last if most is None else _WITH_LINE :]
            commands.append(self.wire.script(script, names, [b"%d" % len(page), source, *arguments, *options]))
            done += len(page)
        return commands

    def register(self, queue: str, rights: str | None = None) -> None:
        """Register the queue with the mover, before the queue's first message.

        PermissionDenied if any of ``rights``, by default a producer's, is missing.
        """
        if queue not in self._registered:
            keys = [self.keys.control("queues"), self.keys.control("queues_marker")]
            # GUARD rights of a producer in a queue
            args = [queue, self.keys.queue(queue, "rows"), *(rights or self.rights).split(), *self.wire.rights]
            refuse_without(self.wire.call("register", keys, args))
            if len(self._registered) >= MOST_QUEUES:
                self._registered.clear()
                self._beginnings.clear()
            self._registered.add(queue)


def ids_of(trip: Trip) -> list[str]:
    return [message.id for page in trip for message in page]


def _may_be_of_another(message: NewMessage) -> bool:
    """Whether the queue may have the id of ``message`` from another call, or whether the message may have replaced
    another one: then a repetition cannot tell what its first try did. An id that we made is ours alone, unless it was
    made of a user's id, as for members of a batch and for links."""
    return bool(message.digest or message.continuation) or replaces(message)


def _as_arguments(page: Sequence[NewMessage]) -> tuple[list[Any], list[Any]]:
    """The messages of a page as arguments of `enqueue.lua`, and their options."""
    arguments, options = list[Any](), list[Any]()
    for position, message in enumerate(page, 1):
        if message[OPTIONS] == NO_OPTIONS:
            arguments += (message.id, rows.record_head(message.handler) + message.payload)
            continue
        when = f"+{message.delay}" if message.delay is not None else f"={message.due}" if message.due else ""
        key = f"{message.key_lifetime}{message.key_rule}:{message.key}" if message.key else ""
        arguments += (message.id, rows.new_record(message))
        options += (position, when, key, message.priority)
    return arguments, options


def _round_trips(messages: Sequence[NewMessage], limited: Container[str]) -> Iterator[Trip]:
    """``messages`` in round trips. A page that may be refused ends its round trip, so no later page is accepted."""
    trip: Trip = []
    for page in pages_of(messages):
        trip.append(page)
        if len(trip) == ENQUEUE_PAGES or any(map(_DIGEST, page)) or page[0].queue in limited:
            yield trip
            trip = []
    if trip:
        yield trip


def pages_of(messages: Sequence[NewMessage]) -> Iterator[list[NewMessage]]:
    """``messages`` in pages: runs for one queue, bounded in number and size."""
    for (_, rule), run in groupby(messages, attrgetter("queue", "key_rule")):  # GUARD none behind one that replaces
        most = 1 if rule.startswith(REPLACES) else ENQUEUE_PAGE  # GUARD what replaces is alone in its page
        while page := list(islice(run, most)):
            yield from _within_bounds(page)


def _within_bounds(page: list[NewMessage]) -> Iterator[list[NewMessage]]:
    """``page``; or its halves, if its payloads are too large together."""
    if len(page) == 1 or sum(map(len, map(_PAYLOAD, page))) <= ENQUEUE_BYTES:
        yield page
    else:
        half = len(page) // 2
        yield from _within_bounds(page[:half])
        yield from _within_bounds(page[half:])


class StrictProducer(Producer):
    """A producer whose messages must be on replicas. Where it need not wait, it is as quick as another producer: on a
    server without replicas, if their number is not set."""

    def __init__(self, wire: Wire, namespace: str, strict: Strict, clocks: Clocks = SYSTEM_CLOCKS) -> None:
        super().__init__(wire, namespace, clocks)
        self._strict = strict
        self.rights = f"{Producer.rights} {strict.right}"  # GUARD rights of one that waits for replicas

    def enqueue_one(self, message: NewMessage) -> Enqueued:
        if self._waits():
            self.refuse_followed([message])
            return self.enqueue([message])[0]
        enqueued = super().enqueue_one(message)
        if self._waits():  # it was sent on a new connection to a server with replicas
            self.enqueue([message])
        return enqueued

    def _waits(self) -> bool:
        return self._strict.waits(self.wire.replicas)

    def _send(self, trip: Trip, origin: Origin | None, done: int) -> list[Any]:
        """The answers to one round trip, once replicas have its messages. NotReplicated if they are accepted, but too
        few replicas confirmed in time."""
        strict, commands = self._strict, self._commands(trip, origin, done, "")
        awaiting = strict.awaiting(self.wire.replicas, [self.keys.queue(page[0].queue, "counters") for page in trip])
        answers = self._call(commands + awaiting, trip, origin, done, awaiting, strict.within)
        if awaiting and (problem := strict.shortfall(answers[-1], self.wire.replicas)):
            self.wire.close()  # the server may no longer be the primary
            accepted = [entry for entry, held in zip(trip, answers, strict=False) if isinstance(held, list)]
            if accepted:
                raise NotReplicated(ids_of(accepted), problem)
        if not awaiting and self._waits():
            self._send(trip, origin, done)
        return answers[: len(trip)]


def refuse_taken(wire: Wire, keys: Keys, what: str, owner: MessagePlace, following: Sequence[MessagePlace]) -> None:
    """Raise UsageError if queues already have an id that a callback or a link of ``owner`` would get. The owner is a
    ``batch`` or a ``message``, as ``what`` says. An owner that exists is not refused, since these messages are its
    own."""
    if not following:
        return
    queue, name = owner
    is_there = [("HEXISTS", keys.queue(queue, "batches"), name)] if what == "batch" else _looks(keys, owner)
    answers = wire.all([*is_there, *(look for each in following for look in _looks(keys, each))])
    if any(answers[: len(is_there)]):
        return
    size = len(_HELD + _REMEMBERED)
    for number, (_, taken) in enumerate(following):
        at = len(is_there) + number * size
        if any(answers[at : at + size]):  # GUARD an id of what follows
            fix = f"give the {what} another id; or purge that message, and 20 minutes later run this again"
            raise UsageError(
                what, name, f"there was a message {taken} before, which would be in place of what follows: {fix}"
            )


def _looks(keys: Keys, position: MessagePlace) -> list[tuple[str, str, str]]:
    """Commands that ask whether a queue keeps or remembers an id."""
    queue, message_id = position
    return [
        *(("HEXISTS", keys.queue(queue, word), message_id) for word in _HELD),
        *(("SISMEMBER", keys.queue(queue, word), message_id) for word in _REMEMBERED),
    ]
