"""The outbox: messages accepted with the completion of another, and ends to be told, not yet sent to their queues.

A queue's keys share one slot of a cluster, and no script touches two: so the script that completes a message writes
what its handler enqueued through its context to the outbox of the same queue; and a script that ends a message with a
continuation tells of that there. The script numbers entries, they are sent in order, and each queue knows the last one
that it received: so sending is idempotent, however late. If a launch dies in between, the mover sends them."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pollconsumer.core.errors import Conflict
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
"""Characters of what is said of a corrupt entry."""
_NUMBERED = rb"(\d{1,16})\n"
_STATES = {"c": State.COMPLETED, "d": State.DEAD, "x": State.CANCELLED, "e": State.EXPIRED}
"""The states by their letters in rows."""
_ENDED = {"as", "ids", "sequel", "home", "added"}
"""What is told of ends: see ``lua/parts/outbox.lua``."""
PAGE_ENTRIES = 20
MOST_QUARANTINED = 1000
"""Entries of a queue that cannot be read and are kept."""
PAGE_MESSAGES = 300
"""Messages after which those of several entries are sent."""
REPORTED_AGAIN_AFTER_MS, REPORTS_KEPT_MS = 60_000, 3_600_000
"""How old an end is that is reported again: older than a failover takes. And for how long reports are kept after the
last one."""
Others = Callable[[str, str, Sequence[tuple[str, str]]], Sequence[str]]
_Outgoing = tuple[Origin | None, Sequence[NewMessage]]
"""Messages of an entry, and where it comes from: None if it must not count as received."""


class Answer(NamedTuple):
    """What the end of a message that a handler called tells the handler's message: ``id`` in ``queue``, which awaits
    the signal ``name``. ``value``: the ended one's id and state, its result or its error."""

    queue: str
    id: str
    name: str
    value: continuations.Packed

    @classmethod
    def of(cls, target: continuations.Packed, value: continuations.Packed) -> Self:
        return cls(check_queue(target["queue"]), target["id"], target["as"], value)

    @classmethod
    def completed(cls, target: continuations.Packed, message_id: str, result: bytes) -> Self:
        """The answer of a completed message. ``result``: encoded, empty for none."""
        kept = json.loads(result) if result else None
        return cls.of(target, {"id": message_id, "state": str(State.COMPLETED), "result": kept})


class Entry(NamedTuple):
    """What an entry of the outbox of ``queue`` has; its ``number`` is 0 if it has none. A corrupt one has a
    ``problem`` alone."""

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
    """``messages`` as one entry of the outbox, batches to be opened before them, and answers; delays count from
    ``now_ms``, the server's."""
    entries = [NOTED | {"opens": opens_of(batch)} for batch in opened]
    entries += [NOTED | {"answers": answer._asdict()} for answer in answers]
    for message in messages:
        due = message.due if message.delay is None else now_ms + message.delay
        entries.append(continuations.packed(message._replace(due=due, delay=None)))
    return json.dumps(entries).encode()


def opens_of(batch: NewBatch) -> continuations.Packed:
    """The fields of a batch that is opened, without one that versions before do not know, unless it says something."""
    given = {name: getattr(batch, field) for name, field in BATCH_FIELDS.items()}
    return {name: value for name, value in given.items() if name != "is_inner" or value}


def member_end_entry(batch_queue: str, added: int = 0) -> bytes:
    """What a step tells of the completion of members of a batch, before their ids."""
    return b'"home":"%b","added":%d,' % (batch_queue.encode(), added)


def read_entry(queue: str, entry: bytes) -> Entry | None:
    """An entry; None if a newer version wrote it."""
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
    """Whether anything in an entry is not known to this version."""
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
    """The messages to enqueue for messages that have ended, what their batches are told, and whoever has called
    them."""
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
    """What each batch is told of the members with these ids."""
    numbers = dict[str, list[int]]()
    for batch, number in filter(None, map(continuations.member_of, ids)):
        numbers.setdefault(batch, []).append(number)
    return [
        Ends(check_queue(batch_queue), batch, letter, batch_numbers, added) for batch, batch_numbers in numbers.items()
    ]


def _opened(given: continuations.Packed) -> NewBatch:
    """A batch that a completion opens."""
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
    """A message that `enqueue` accepts. The delay of one that was written before the entry counts from that."""
    message = continuations.sound(given)
    if message.delay is None:
        return message
    if not number:
        raise ValueError(message)
    return message._replace(due=number // 1000 + message.delay, delay=None)


def send(
    store: "RedisStore",
    queue: str,
    conflicting: Callable[[str, str], object],
    leaving: Callable[[], object] = lambda: None,
    refusing: Callable[[str, str], object] = lambda *_: None,
    others: Others = lambda *_: [],
) -> int:
    """Send the entries in the outbox of ``queue``, a page at a time; also those that this brings about in others, where
    batches end. Returns the number of messages. Errors as in enqueueing.

    A message whose id belongs to another handler or payload is dropped; ``conflicting`` is called with id and queue.
    Entries of a newer version stay: they have fields that this one would drop. ``leaving`` is called if there are any.
    One that cannot be read is quarantined; ``refusing`` is called with its queue, and why. ``others`` says which
    members of a batch, given its queue, its id, and their queues and ids, are other messages.
    """
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
                    refusing(sender, entry.problem)
                    continue
                # A numbered entry after one that stays would make that one a duplicate: send it by its ids instead.
                page.append(entry._replace(number=0) if left else entry)  # GUARD what is left is not overtaken
                gone.append(each)
            sent += _send(store, page, conflicting, others, queues)  # GUARD sent before it is forgotten
            *_, stored = store.wire.all(
                [
                    *_keeping(store, sender, page, gone),
                    *_quarantining(store, sender, unreadable),  # GUARD kept for a person before it is dropped
                    *(("LREM", outbox, 1, each) for each in (*gone, *unreadable)),
                    ("LRANGE", outbox, left, left + PAGE_ENTRIES - 1),
                ]
            )
        if left:
            leaving()
    return sent


def _quarantining(store: "RedisStore", queue: str, entries: Sequence[bytes]) -> list[Command]:
    """The commands that keep entries for a person, the last ones of a queue."""
    if not entries:
        return []
    key = store.keys.queue(queue, "quarantine")
    surplus = int(store.wire.command("LLEN", key)) + len(entries) - MOST_QUARANTINED
    return [("RPUSH", key, *entries), *([("LPOP", key, surplus)] if surplus > 0 else [])]


def _keeping(store: "RedisStore", queue: str, page: Sequence[Entry], stored: Sequence[bytes]) -> list[Command]:
    """The commands that keep what queues of batches were told by ``page``, where they have another node than ``queue``:
    see `report_again`."""
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
    """Tell queues of batches again which members of ``queue`` had ended a minute ago. A queue whose node failed over
    may have forgotten it, while the node of ``queue`` remembers that it was sent; if it has not, it changes nothing."""
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
    store: "RedisStore",
    page: Sequence[Entry],
    conflicting: Callable[[str, str], object],
    others: Others,
    queues: list[str],
) -> int:
    """Send entries: first what is told, since messages may be members by which a batch has grown. Adds the queues whose
    outbox has got something by that."""
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
    if known := _send_messages(store, outgoing, conflicting):
        queues += _end_others(store, known, conflicting, others)
    return sum(len(messages) for _, messages in outgoing)


def _answer(store: "RedisStore", entry: Entry) -> None:
    """Tell messages whose handlers called others of their ends: by a signal, of which the first counts."""
    for each in entry.answers:
        value = each.value
        if value["state"] != State.COMPLETED:
            error = store.wire.command("HGET", store.keys.queue(entry.queue, "errors"), value["id"])
            value = value | {"error": (error or b"").decode("utf-8", "replace").partition("\0")[0] or value["state"]}
        line = f"\n{each.name}\t".encode(), json.dumps(value).encode()
        store.wire.run("signal", store.keys, each.queue, [each.id, *line, MOST_BYTES])


def _send_messages(
    store: "RedisStore", outgoing: Iterable[_Outgoing], conflicting: Callable[[str, str], object]
) -> list[NewMessage]:
    """Send messages in the order of their entries. What may conflict is sent alone, since the rest of its entry would
    come too late after another; so is what has no number, of which a repetition is refused after a time. Returns the
    messages that their queues had already."""
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
            known += send_alone(store.producer, origin, messages, conflicting)
    return [*known, *store.producer.enqueue_sent_on(together)]


def _end_others(
    store: "RedisStore", known: Iterable[NewMessage], conflicting: Callable[[str, str], object], others: Others
) -> list[str]:
    """End members whose ids belong to other messages as cancelled: their batches would wait for them for ever. A
    producer is refused those; what a handler adds is sent when its own message has ended. Returns the queues whose
    outbox has got something."""
    ends = list[Ends]()
    for message in known:
        batch_queue, member = (
            continuations.decoded(message.continuation.encode())[0].batch,
            continuations.member_of(message.id),
        )
        if not (batch_queue and member) or "+" in message.id:
            continue
        if others(batch_queue, member[0], [(message.queue, message.id)]):  # GUARD a member that is another message
            conflicting(message.id, message.queue)
            ends.append(Ends(batch_queue, member[0], "x", [member[1]]))
    return Batches(store.producer).take_in([], ends)


def send_alone(
    producer: Producer,
    origin: Origin | None,
    messages: Sequence[NewMessage],
    conflicting: Callable[[str, str], object],
) -> list[NewMessage]:
    """Send the messages of one entry, but for those that conflict. Returns those that their queues had already."""
    position, end, note, known = 0, len(messages), -1, list[NewMessage]()
    while position < len(messages):
        try:
            held = producer.enqueue(messages[position:end], origin and origin._replace(position=position))
            known += [message for message, entry in zip(messages[position:end], held, strict=True) if entry.duplicate]
        except Conflict as error:
            refused = position + error.at
            if refused != note:
                conflicting(error.id, messages[refused].queue)
            note = refused
            if error.at:  # send what is before it; then, as the first of a call, it counts as received
                end = refused
            else:
                position, end = position + 1, len(messages)
        else:
            position, end = end, len(messages)
    return known
