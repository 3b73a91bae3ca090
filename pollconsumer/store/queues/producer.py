"""Enqueueing: generated ids, the producer, the producer that waits for replicas, and refusal of ids that are taken."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""What one write sends: pages, each with messages of one queue."""

ENQUEUE_PAGE = 75
"""Number of messages for one script. With a hundred scheduled ones the server may block for more than 5 ms."""
ENQUEUE_PAGES = 4
"""Number of scripts in one round trip."""
ENQUEUE_BYTES = 1 << 20
MOST_QUEUES = 2000
"""Maximum number of queues that a producer remembers as registered. At that number it forgets all."""
ID_MEMORY_MS = 600_000
"""Milliseconds for which the ids of deleted messages are remembered at least: see ``lua/parts/id_memory.lua``."""
MOST_REMEMBERED = 3_000_000
"""Maximum number of ids in each of two generations. If more messages are deleted within ID_MEMORY_MS, ids are
remembered for a shorter time."""
_WITHOUT, _WITH_OUTBOX, _WITH_ANSWER, _WITH_LINE = -7, -6, -5, -3
"""Where the last keys of `enqueue.lua` begin that are left out: for most messages; for those of an outbox; with an
answer to keep; with a limit of ready messages."""
REPEAT_WITHIN_MS = ID_MEMORY_MS // 2
"""Milliseconds after the first call for which an enqueueing may be repeated. Ids are remembered for longer."""
_ID, _PAYLOAD, _DIGEST = map(attrgetter, ("id", "payload", "digest"))
_HELD, _REMEMBERED = ("records", "rows"), ("id_memory", "id_memory_before")
MessagePlace = tuple[str, str]
"""A queue, and the id of a message in it."""


class _Identifiers:
    """Generates ids that sort by time: 48 bits of milliseconds, then 64 random bits, counted up within a
    millisecond."""

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
    """A message's id. ``duplicate``: nothing was enqueued, since a message with this id, or one with the unique key,
    was there; ``id`` is the id of that message."""

    id: str
    duplicate: bool


_enqueued: Callable[[tuple[str, bool]], Enqueued] = partial(tuple.__new__, Enqueued)
"""Makes an `Enqueued` from a tuple, in a quarter of the time that its constructor takes."""


class Origin(NamedTuple):
    """The outbox entry from which messages come, and the position of the first of them in the entry."""

    queue: str
    number: int
    position: int


class Producer:
    rights = PRODUCER
    demand: LaunchDemand | None = None
    """Starts a launch if no launch serves a queue; None if launches do not start on demand."""
    most_ready: Mapping[str, int] = MappingProxyType({})
    """By queue, how many messages may be ready. Queues that are missing here have no limit."""

    def __init__(self, wire: Wire, namespace: str, clocks: Clocks = SYSTEM_CLOCKS) -> None:
        self.wire, self._clocks = wire, clocks
        self.keys = Keys(namespace)
        self._calls = 0
        """The number of the current call, or of the next one. A repetition of a call has the same number."""
        self._number, self._pid = "", 0
        """A random text that identifies this producer, and the process in which it was drawn."""
        self._registered: set[str] = set()
        self._beginnings: dict[str, Command] = {}
        """By registered queue, script and keys of the command that enqueues a message without options."""
        self._replacing: set[str] = set()

    def enqueue_one(self, message: NewMessage) -> Enqueued:
        """Enqueue one message. One without options is enqueued by a quick script with fewer checks.

        The first message of each queue is enqueued by the general script, which makes the server store records in a
        form that is quick to search. Repetitions also use it, since it recognises ids."""
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
        """Raise UsageError if a message has an id that a user chose, and the id of one of its links or callbacks, which
        is derived from it, is taken. That link or callback would be dropped as a duplicate."""
        for message in filter(_DIGEST, messages):
            if message.continuation:
                continuation, _ = continuations.decoded(message.continuation.encode())
                following = [
                    each for each in (*continuation.links, continuation.then, continuation.failed) if each is not None
                ]
                paths = [(each["queue"], each["id"]) for each in following]
                refuse_taken(self.wire, self.keys, "message", (message.queue, message.id), paths)

    def enqueue(self, messages: Sequence[NewMessage], origin: Origin | None = None) -> list[Enqueued]:
        """Enqueue messages in order, see `enqueue_pages`. An error's ``accepted`` has the ids enqueued before it."""
        results: list[Enqueued] = []
        try:
            for accepted in self.enqueue_pages(messages, origin):
                results += accepted
        except (StoreUnreachable, CannotCreate, Conflict, QueueFull) as error:
            error.accepted = [entry.id for entry in results]
            raise
        return results

    def enqueue_pages(self, messages: Sequence[NewMessage], origin: Origin | None = None) -> Iterator[list[Enqueued]]:
        """Enqueue messages in order. Yields the answers page by page; a page is enqueued whole or not at all.

        A call is repeated after a lost reply, which does no harm. OutcomeUnknown, with the ids, if a round trip is not
        answered while patience lasts. StoreUnreachable if nothing was sent. NotReplicated if messages are enqueued, but
        too few replicas confirmed that in time. Conflict if an id belongs to a message with another handler or payload.
        QueueFull if a queue would have too many ready messages. After the latter two, that page and later ones are not
        enqueued."""
        done = 0
        for trip in _round_trips(messages, {} if origin else self.most_ready):
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
        """Enqueue the messages of several outbox entries, in order, in one round trip. None of them may conflict.
        Returns those that their queues had already."""
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
        """The result for a page, from ``held``, the script's answer. Raises the errors of `enqueue_pages`."""
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
        """The answers to one round trip. ``done``: how many messages of the same call were enqueued before."""
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
        """The answers to ``commands``. A repetition sends newly made commands for ``trip``, with ``awaiting`` at the
        end.

        The store refuses a repetition when it may have forgotten the ids. Its own clock decides that, since this
        process may have been suspended in between. Repetitions from an outbox do not depend on ids."""
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
            repeated = self.wire.repeated  # by this call; `ensure_launch` makes another
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
        if repeated:
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
            names = self.keys.names_for(script.keys, page[0].queue)
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
        """Record the queue in the namespace, so that movers know it. Called before the queue's first message.

        PermissionDenied if any of ``rights``, by default a producer's, is missing."""
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
    """Whether another call may have enqueued the id of ``message``, or ``message`` may replace another: then a
    repetition cannot tell what the first try did. No other call enqueues a generated id, unless the id is derived from
    one that a user chose, as those of members and links may be."""
    return bool(message.digest or message.continuation) or replaces(message)


def _as_arguments(page: Sequence[NewMessage]) -> tuple[list[Any], list[Any]]:
    """The messages of a page as arguments of `enqueue.lua`, and the arguments for its options."""
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


def _round_trips(messages: Sequence[NewMessage], most_ready: Mapping[str, int]) -> Iterator[Trip]:
    """``messages`` in round trips. A page that may be refused is the last of its trip: its queue has a limit, or it has
    an id that a user chose."""
    trip: Trip = []
    for page in pages_of(messages, most_ready):
        trip.append(page)
        if len(trip) == ENQUEUE_PAGES or any(map(_DIGEST, page)) or page[0].queue in most_ready:
            yield trip
            trip = []
    if trip:
        yield trip


def pages_of(
    messages: Sequence[NewMessage], most_ready: Mapping[str, int] = MappingProxyType({})
) -> Iterator[list[NewMessage]]:
    """``messages`` in pages: consecutive ones of one queue, limited in number and size; one that replaces, alone. A
    page has no more messages than ``most_ready`` allows in its queue: a larger one would always be refused."""
    for (queue, rule), run in groupby(messages, attrgetter("queue", "key_rule")):  # GUARD none behind one that replaces
        most = min(ENQUEUE_PAGE, most_ready.get(queue, ENQUEUE_PAGE))
        most = 1 if rule.startswith(REPLACES) else most  # GUARD what replaces is alone in its page
        while page := list(islice(run, most)):
            yield from _within_bounds(page)


def _within_bounds(page: list[NewMessage]) -> Iterator[list[NewMessage]]:
    """``page``, or smaller pages if its payloads are too large together."""
    if len(page) == 1 or sum(map(len, map(_PAYLOAD, page))) <= ENQUEUE_BYTES:
        yield page
    else:
        half = len(page) // 2
        yield from _within_bounds(page[:half])
        yield from _within_bounds(page[half:])


class StrictProducer(Producer):
    """A producer that waits until replicas have its messages. If the server has no replicas, it waits only if the
    settings name a number of replicas, or ``aof``."""

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
        """The answers to one round trip, after replicas have confirmed it. NotReplicated if messages are enqueued, but
        too few replicas confirmed that in time."""
        strict, commands = self._strict, self._commands(trip, origin, done, "")
        awaiting = strict.awaiting(self.wire, [self.keys.queue(page[0].queue, "counters") for page in trip])
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
    """Raise UsageError if a queue already has an id that a callback or link in ``following`` would get. ``what``:
    ``batch`` or ``message``, the kind of ``owner``. If the owner itself is there already, nothing is raised: then the
    ids may be taken by its own callbacks and links."""
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
    """Commands that ask whether a queue has a message with this id, or remembers it."""
    queue, message_id = position
    return [
        *(("HEXISTS", keys.queue(queue, word), message_id) for word in _HELD),
        *(("SISMEMBER", keys.queue(queue, word), message_id) for word in _REMEMBERED),
    ]
