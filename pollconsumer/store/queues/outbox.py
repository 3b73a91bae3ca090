"""The outbox of a queue: messages that were accepted with the completion of another message, and reports that messages
have ended, until they are sent to other queues.

The keys of a queue are in one slot of a cluster, and a script may touch the keys of one slot only. So the script that
completes a message writes what its handler enqueues to the outbox of the same queue. A script that ends a message with
a continuation reports the end to that outbox. Entries are numbered and sent in order, and each queue remembers the last
one that it received, so an entry may be sent twice without harm. If a launch dies, the mover sends its entries."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pollconsumer.core.errors import Conflict, StoreUnreachable
from pollconsumer.core.events import ConflictDropped, Event, NewerMessagesFound, OutboxEntryRefused
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages import continuation as continuations
from pollconsumer.core.messages.message import NewMessage, check_id, check_queue
from pollconsumer.core.messages.message_steps import MOST_BYTES
from pollconsumer.store.client.connection import Command
from pollconsumer.store.queues.batches import BATCH_FIELDS, CALLBACKS, NOTED, Batches, Ends, NewBatch
from pollconsumer.store.queues.producer import Origin, Producer
from pollconsumer.store.server import TIME, to_ms

if TYPE_CHECKING:
    from pollconsumer.store.queues.redis_store import RedisStore

MOST_PROBLEM = 160
"""Maximum characters of the text that says why an entry is corrupt."""
_NUMBERED = rb"(\d{1,16})\n"
_STATES = {"c": State.COMPLETED, "d": State.DEAD, "x": State.CANCELLED, "e": State.EXPIRED}
"""The states for the letters in rows."""
_ENDED = {"as", "ids", "sequel", "home", "added"}
"""The stored names of the fields of a report: see ``lua/parts/outbox.lua``."""
PAGE_ENTRIES = 20
MOST_QUARANTINED = 1000
"""Number of unreadable entries that a queue keeps."""
PAGE_MESSAGES = 300
"""Several entries are sent together until they have so many messages."""
REPORTED_AGAIN_AFTER_MS, REPORTS_KEPT_MS = 60_000, 3_600_000
"""The age at which a report is sent again: longer than a failover takes. And how long reports are kept after the last
one."""
MOST_ERROR_BYTES = 3 * MOST_BYTES
"""Room for errors among the signals of a message: MOST_STEPS of them, each with a text of 500 characters."""
NO_ROOM = f"its result does not fit into its caller's {MOST_BYTES} bytes: store it elsewhere"
Others = Callable[[str, str, Sequence[tuple[str, str]]], Sequence[str]]
_Outgoing = tuple[Origin | None, Sequence[NewMessage]]
"""An entry's origin, None if its number must not be remembered as received; and the entry's messages."""


class Answer(NamedTuple):
    """The answer to a handler that has called a message, when that message has ended. It is sent to the handler's
    message, ``id`` in ``queue``, as the signal ``name``. ``value``: the called message's id, state, and result or
    error."""

    queue: str
    id: str
    name: str
    value: continuations.Packed

    @classmethod
    def of(cls, target: continuations.Packed, value: continuations.Packed) -> Self:
        return cls(check_queue(target["queue"]), target["id"], target["as"], value)

    @classmethod
    def completed(cls, target: continuations.Packed, message_id: str, result: bytes) -> Self:
        """The answer for a completed message. ``target``: who gets it. ``result``: encoded; empty without one."""
        kept = json.loads(result) if result else None
        return cls.of(target, {"id": message_id, "state": str(State.COMPLETED), "result": kept})


class Entry(NamedTuple):
    """An outbox entry. ``queue``: the outbox's queue. ``number``: 0 if the entry has no number. A corrupt entry has
    only a ``problem``."""

    queue: str
    number: int
    messages: Sequence[NewMessage] = ()
    ends: Sequence[Ends] = ()
    opened: Sequence[NewBatch] = ()
    answers: Sequence[Answer] = ()
    problem: str = ""


def pack(
    messages: Sequence[NewMessage], now_ms: int, opened: Sequence[NewBatch] = (), answers: Sequence[Answer] = ()
) -> bytes:
    """The text of an outbox entry: ``messages``, batches to be opened before them, and answers. Delays are replaced by
    instants, counted from ``now_ms``, the server's time."""
    entries = [NOTED | {"opens": opens_of(batch)} for batch in opened]
    entries += [NOTED | {"answers": answer._asdict()} for answer in answers]
    for message in messages:
        due = message.due if message.delay is None else now_ms + message.delay
        entries.append(continuations.packed(message._replace(due=due, delay=None)))
    return json.dumps(entries).encode()


def opens_of(batch: NewBatch) -> continuations.Packed:
    """The stored fields of a batch. ``is_inner``, which earlier versions do not know, is left out unless it is set."""
    given = {name: getattr(batch, field) for name, field in BATCH_FIELDS.items()}
    return {name: value for name, value in given.items() if name != "is_inner" or value}


def member_end_entry(batch_queue: str, added: int = 0) -> bytes:
    """The report of completed members of a batch, except their ids, which `step.lua` appends. ``added``: how many
    members they have added."""
    return b'"home":"%b","added":%d,' % (batch_queue.encode(), added)


def read_entry(queue: str, entry: bytes) -> Entry | None:
    """The outbox entry with the text ``entry``. None if a newer version wrote it."""
    found = re.match(_NUMBERED, entry)
    number, content = (int(found[1]), entry[found.end() :]) if found else (0, entry)
    try:
        given = json.loads(content)
        if not isinstance(given, list):
            raise TypeError("it is no list")
        if _is_newer(given):  # GUARD entries of a newer version
            return None
        messages, ends, opened, answers = list[NewMessage](), list[Ends](), list[NewBatch](), list[Answer]()
        for each in given:
            if "ended" in each:
                more, end, answer = _ended(queue, number, each["ended"])
                messages += more
                ends += end
                answers += answer
            elif "answers" in each:
                answers.append(_answer_in(each["answers"]))
            elif "opens" in each:
                opened.append(_opened(each["opens"]))
            else:
                messages.append(_message(each, number))
        return Entry(queue, number, messages, ends, opened, answers)
    except continuations.UNPACKABLE as error:
        return Entry(queue, number, problem=f"{type(error).__name__}: {error}"[:MOST_PROBLEM])


def _is_newer(given: list[continuations.Packed]) -> bool:
    """Whether the parts of an entry have a field that this version does not know."""
    if not all(each.keys() >= set(continuations.REQUIRED) for each in given):
        return False
    known = {*continuations.FIELDS, "ended", "opens", "answers"}
    return any(
        each.keys() - known
        or each.get("ended", {}).keys() - _ENDED
        or each.get("opens", {}).keys() - BATCH_FIELDS.keys()
        or each.get("answers", {}).keys() - set(Answer._fields)
        or continuations.continuation_of(each.get("ended", {}).get("sequel", {}))[1]
        for each in given
    )


def _ended(queue: str, number: int, note: continuations.Packed) -> tuple[list[NewMessage], list[Ends], list[Answer]]:
    """What follows from the report ``note``: messages to enqueue, members to count in batches, and answers for handlers
    that called a message and wait for its end. ``number``: the number of the outbox entry that holds the note."""
    letter, ids = note["as"], note["ids"].split(" ")
    state = _STATES[letter]
    if "sequel" not in note:
        return [], _ends(note["home"], letter, ids, continuations.whole(note["added"])), []
    continuation = continuations.continuation_of(note["sequel"])[0]
    messages = continuation.following(ids[0], queue, state, number // 1000)
    answers = (
        [] if continuation.answers is None else [Answer.of(continuation.answers, {"id": ids[0], "state": str(state)})]
    )
    return messages, _ends(continuation.batch, letter, ids) if continuation.ends_member(state) else [], answers


def _ends(batch_queue: str, letter: str, ids: Sequence[str], added: int = 0) -> list[Ends]:
    """For each batch, the members with these ``ids``, which have ended as ``letter`` says."""
    numbers = dict[str, list[int]]()
    for batch, number in filter(None, map(continuations.member_of, ids)):
        numbers.setdefault(batch, []).append(number)
    return [
        Ends(check_queue(batch_queue), batch, letter, batch_numbers, added) for batch, batch_numbers in numbers.items()
    ]


def _opened(given: continuations.Packed) -> NewBatch:
    """The batch to be opened, from its stored fields. An error of `continuations.UNPACKABLE` if they are corrupt."""
    batch = NewBatch(**{BATCH_FIELDS[name]: value for name, value in given.items()})
    check_queue(batch.queue)
    check_id(batch.id)
    for name, message in batch.callbacks.items():
        if name not in CALLBACKS:
            raise ValueError(name)
        continuations.sound(message)
    for number in (batch.expires, 0 if batch.total is None else batch.total):
        continuations.whole(number)
    for name in ("spares_cancelled", "is_inner"):
        if type(getattr(batch, name)) is not bool:
            raise TypeError(f"{name} is {getattr(batch, name)!r}")
    return batch


def _answer_in(given: continuations.Packed) -> Answer:
    answer = Answer(**given)
    check_queue(answer.queue)
    for text in (answer.id, answer.name, answer.value["id"], answer.value["state"]):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text")
    return answer


def _message(given: dict[str, Any], number: int) -> NewMessage:
    """A message of an entry, checked. Its delay counts from the instant in the entry's ``number``."""
    message = continuations.sound(given)
    if message.delay is None:
        return message
    if not number:
        raise ValueError(message)
    return message._replace(due=number // 1000 + message.delay, delay=None)


def send(store: "RedisStore", queue: str, emit: Callable[[Event], object], others: Others = lambda *_: []) -> int:
    """Send the entries in the outbox of ``queue``, page by page. If this ends batches, the outboxes of their queues
    have new entries, which are sent, too. Returns the number of messages sent. Raises the errors of enqueueing.

    A message whose id another one has, with another handler or payload, is dropped. Entries of a newer version are
    left. An unreadable entry is quarantined. ``emit`` is called for each of these. ``others`` is called with a batch's
    queue and id, and queues and ids of members that were duplicates. It returns the ids that are taken by messages
    outside the batch."""
    queues, sent = [queue], 0
    for sender in queues:  # the list grows meanwhile
        outbox, left = store.keys.queue(sender, "outbox"), 0
        stored = store.wire.command("LRANGE", outbox, 0, PAGE_ENTRIES - 1)
        while stored:
            page, gone, unreadable = list[Entry](), list[bytes](), list[bytes]()
            for each in stored:
                entry = read_entry(sender, each)
                if entry is None:
                    left += 1
                    continue
                if entry.problem:
                    unreadable.append(each)
                    emit(OutboxEntryRefused(sender, entry.problem))
                    continue
                # If a numbered entry is sent after one that stays, the latter would count as a duplicate. So send it by
                # its ids.
                page.append(entry._replace(number=0) if left else entry)  # GUARD what is left is not overtaken
                gone.append(each)
            sent += _send(store, page, emit, others, queues)  # GUARD sent before it is forgotten
            # Before the others, since a full server refuses these commands alone.
            if quarantining := _quarantining(store, sender, unreadable):
                store.wire.all(quarantining)  # GUARD kept for a person before it is dropped
            if keeping := _keeping(store, sender, page, gone):
                try:
                    store.wire.all(keeping)
                except StoreUnreachable as error:
                    if not error.full:  # else the reports are sent once, as on one server
                        raise
            removing: list[Command] = [("LREM", outbox, 1, each) for each in (*gone, *unreadable)]
            *_, stored = store.wire.all([*removing, ("LRANGE", outbox, left, left + PAGE_ENTRIES - 1)])
        if left:
            emit(NewerMessagesFound(queue))
    return sent


def _quarantining(store: "RedisStore", queue: str, entries: Sequence[bytes]) -> list[Command]:
    """The commands that move entries to the quarantine of ``queue``, which keeps MOST_QUARANTINED, the last ones."""
    if not entries:
        return []
    key = store.keys.queue(queue, "quarantine")
    surplus = int(store.wire.command("LLEN", key)) + len(entries) - MOST_QUARANTINED
    return [("RPUSH", key, *entries), *([("LPOP", key, surplus)] if surplus > 0 else [])]


def _keeping(store: "RedisStore", queue: str, page: Sequence[Entry], stored: Sequence[bytes]) -> list[Command]:
    """On a cluster, the commands that keep those entries of ``page`` that report to other queues, for `report_again`.
    ``stored``: the entries' texts."""
    kept = [
        each
        for entry, each in zip(page, stored, strict=True)
        if any(end.queue != queue for end in entry.ends) or any(answer.queue != queue for answer in entry.answers)
    ]
    if not kept or not store.wire.is_cluster:
        return []
    note = store.keys.queue(queue, "told")
    return [("RPUSH", note, *kept), ("PEXPIRE", note, REPORTS_KEPT_MS)]


def report_again(store: "RedisStore", queue: str) -> None:
    """Send again those reports from ``queue`` that are over a minute old, to the queues of batches and of callers. A
    failover of such a queue's node may have lost a report, after ``queue`` had dropped it as sent. A report that was
    not lost changes nothing."""
    note = store.keys.queue(queue, "told")
    while True:
        stored, time = store.wire.all([("LRANGE", note, 0, PAGE_ENTRIES - 1), TIME])
        until = (to_ms(time) - REPORTED_AGAIN_AFTER_MS) * 1000
        entries = {each: entry for each in stored if (entry := read_entry(queue, each)) is not None}
        old = {each: entry for each, entry in entries.items() if entry.number <= until}  # GUARD after a failover
        if old:
            Batches(store.producer).take_in([], [end for entry in old.values() for end in entry.ends])
            for entry in old.values():
                _answer(store, entry)
            store.wire.all([("LREM", note, 1, each) for each in old])  # GUARD told again before it is forgotten
        if len(old) < PAGE_ENTRIES:
            return


def _send(
    store: "RedisStore", page: Sequence[Entry], emit: Callable[[Event], object], others: Others, queues: list[str]
) -> int:
    """Send the entries of ``page``. Reports go first: a batch must know of further members before they are enqueued.
    If an outbox gets new entries thereby, its queue is added to ``queues``. Returns the number of messages."""
    opened, ends = [each for entry in page for each in entry.opened], [each for entry in page for each in entry.ends]
    if opened or ends:
        # GUARD grown before its members are there
        queues += [each for each in Batches(store.producer).take_in(opened, ends) if each not in queues[-1:]]
    for entry in page:
        _answer(store, entry)
    outgoing = [
        (Origin(entry.queue, entry.number, 0) if entry.number else None, entry.messages)
        for entry in page
        if entry.messages
    ]
    if known := _send_messages(store, outgoing, emit):
        queues += _end_others(store, known, emit, others)
    return sum(len(messages) for _, messages in outgoing)


def _answer(store: "RedisStore", entry: Entry) -> None:
    """Send an entry's answers to handlers that called messages, as signals. A repeated signal does nothing. A result
    that does not fit beside the caller's other signals is replaced by an error. Errors have room of their own."""
    for each in entry.answers:
        value = each.value
        if value["state"] == State.COMPLETED:
            if _signal(store, each, value, MOST_BYTES) != b"full":  # GUARD a caller gets an answer
                continue
            value = {"id": value["id"], "state": "", "error": NO_ROOM}
        else:
            error = store.wire.command("HGET", store.keys.queue(entry.queue, "errors"), value["id"])
            value = value | {"error": (error or b"").decode("utf-8", "replace").partition("\0")[0] or value["state"]}
        _signal(store, each, value, MOST_BYTES + MOST_ERROR_BYTES)


def _signal(store: "RedisStore", answer: Answer, value: continuations.Packed, most: int) -> bytes | None:
    """Send ``value`` as the signal of ``answer``. Dead letters get it, too, since they may be redriven. ``most``:
    maximum bytes of the caller's signals. Returns what `signal.lua` returns."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    args = [answer.id, f"\n{answer.name}\t".encode(), text, most, 1]
    returned: bytes | None = store.wire.run("signal", store.keys, answer.queue, args)
    return returned


def _send_messages(
    store: "RedisStore", outgoing: Iterable[_Outgoing], emit: Callable[[Event], object]
) -> list[NewMessage]:
    """Send messages in the order of their entries. Returns those that their queues had already. Entries that cannot
    conflict are sent together. An entry with a chosen id is sent alone, since after a conflict the rest of it is sent
    again. An entry without a number is sent alone, since its repetition is refused after some minutes."""
    together, known = list[tuple[Origin, Sequence[NewMessage]]](), list[NewMessage]()
    for origin, messages in outgoing:
        if origin is not None and not any(message.digest for message in messages):
            together.append((origin, messages))
            if sum(len(each) for _, each in together) >= PAGE_MESSAGES:
                known += store.producer.enqueue_sent_on(together)
                together = []
        else:
            known += store.producer.enqueue_sent_on(together)
            together = []
            known += send_alone(
                store.producer, origin, messages, lambda each: emit(ConflictDropped(each.id, each.queue))
            )
    return [*known, *store.producer.enqueue_sent_on(together)]


def _end_others(
    store: "RedisStore", known: Iterable[NewMessage], emit: Callable[[Event], object], others: Others
) -> list[str]:
    """Count as cancelled the members whose ids other messages have: otherwise their batches would wait for them for
    ever. Such members were added by handlers; a producer gets an error at once. Returns the queues whose outboxes this
    gives new entries."""
    ends = list[Ends]()
    for message in known:
        batch_queue = continuations.decoded(message.continuation.encode())[0].batch
        member = continuations.member_of(message.id)
        if not (batch_queue and member) or "+" in message.id:
            continue
        if others(batch_queue, member[0], [(message.queue, message.id)]):  # GUARD a member that is another message
            emit(ConflictDropped(message.id, message.queue))
            ends.append(Ends(batch_queue, member[0], "x", [member[1]]))
    return Batches(store.producer).take_in([], ends)


def send_alone(
    producer: Producer,
    origin: Origin | None,
    messages: Sequence[NewMessage],
    conflicting: Callable[[NewMessage], object],
) -> list[NewMessage]:
    """Send the messages of one entry, except those that conflict: ``conflicting`` is called with each. Returns those
    that their queues had already."""
    position, end, note, known = 0, len(messages), -1, list[NewMessage]()
    while position < len(messages):
        try:
            held = producer.enqueue(messages[position:end], origin and origin._replace(position=position))
            known += [message for message, entry in zip(messages[position:end], held, strict=True) if entry.duplicate]
        except Conflict as error:
            refused = position + error.at
            if refused != note:
                conflicting(messages[refused])
            note = refused
            if error.at:  # send what is before it; it then counts as received, as the first of a call
                end = refused
            else:
                position, end = position + 1, len(messages)
        else:
            position, end = end, len(messages)
    return known
