"""What a message was enqueued with: stored so that an earlier version reads what it can, and leaves the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.messages.message import TRAVELLING, NewMessage, Options, decoded_options
from pollconsumer.core.messages.payloads import Malformed
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.outbox import pack
from pollconsumer.store.records import rows
from tests.store.acting import QUEUE, Launch, Looking, chosen, finish, message

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

HEADERS = {"trace-id": "4bf92f", "Lang": "fr, é"}
LARGE = b'{"x":"%b"}' % (b"x" * 2000)


def test_a_message_without_options_has_the_form_that_earlier_versions_read() -> None:
    plain, with_keys = message("a", payload=b'{"n":1}'), message("b", priority=-3, key="k", concurrency="c", limit=2)
    assert rows.new_record(plain) == b"A\0\x80\0\0handler\n" + b'{"n":1}'
    assert rows.new_record(with_keys) == b"A\n\x7f\xfd\1k\2\1chandler\n{}"


def test_every_way_to_enqueue_stores_the_record_of_that_form(store: RedisStore, look: Looking) -> None:
    plain, more, last = message("a", payload=b'{"n":1}'), message("b", priority=2), message("c", payload=b'{"n":1}')
    store.enqueue([plain, more])
    store.producer.enqueue_one(last)
    stored = {name: record[:4] + record[10:] for name, record in look.hash("records").items()}
    assert stored == {each.id: rows.new_record(each) for each in (plain, more, last)}


OF_EACH_OPTION: dict[str, Any] = {
    "headers": HEADERS, "timeout": 1.5, "max_attempts": 7, "retry": "patient", "ping": "https://monitor/a",
    "encoded": True,
}  # fmt: skip


def test_there_is_an_example_of_each_option_and_the_fields_of_a_message_have_its_name() -> None:
    assert (*OF_EACH_OPTION,) == Options._fields == TRAVELLING
    assert NewMessage.__annotations__.keys() >= {*TRAVELLING}


@pytest.mark.parametrize("option", Options._fields)
def test_an_option_comes_back_from_the_record_of_a_message_that_has_no_other(option: str) -> None:
    sent = rows.new_record(message("a")._replace(**{option: OF_EACH_OPTION[option]}))
    _, _, options, _, _ = rows.content(sent[:4] + rows.NEVER + sent[4:])  # with the server's instant
    found, is_newer = decoded_options(options)
    assert found == Options(**{option: OF_EACH_OPTION[option]})
    assert not is_newer


@pytest.mark.parametrize("payload", [b'{"n":1}', LARGE])
@pytest.mark.parametrize("more", [{}, {"key": "k", "concurrency": "c"}, {"priority": 7}, {"delay": 1}])
def test_headers_come_with_the_message_beside_its_payload(
    store: RedisStore, look: Looking, inspector: Inspector, payload: bytes, more: dict[str, object]
) -> None:
    headed = message("a", payload=payload, headers=HEADERS, **more)  # type: ignore[arg-type]
    store.enqueue([headed])
    assert look.hash("records")["a"].startswith(b"B")
    assert inspector.message("a").headers == HEADERS
    launch = Launch(store)
    while more.get("delay") and not store.promote(launch.claim, QUEUE, 1).moved:
        pass
    (reservation,) = launch.reserve()
    assert (reservation.handler, reservation.payload) == ("handler", payload)
    assert decoded_options(reservation.common.options) == (Options(HEADERS), False)
    launch.settle(finish(reservation))
    found = inspector.message("a")
    assert (found.handler, found.state, found.priority) == ("handler", "completed", headed.priority)
    assert look.hash("unique_keys") == look.hash("places_taken") == {}


@pytest.mark.parametrize("payload", [b"{}", LARGE])
@pytest.mark.parametrize("cancelled", [False, True])
def test_the_name_of_a_handler_is_shown_without_the_digest_after_it(
    store: RedisStore, inspector: Inspector, person: MessageActions, payload: bytes, *, cancelled: bool
) -> None:
    store.enqueue([chosen("a", payload)])
    if cancelled:
        person.cancel(QUEUE, "a")
    else:
        launch = Launch(store)
        launch.complete(*launch.reserve())
    assert inspector.message("a").handler == "handler"


@pytest.mark.parametrize("stored", [b"{", b"[]", b"7", b'{"headers":[1]}', b'{"headers":{"a":1}}', b"\xff"])
def test_options_that_somebody_else_wrote_are_malformed(stored: bytes) -> None:
    with pytest.raises(Malformed, match="malformed: its options"):
        decoded_options(stored)


@pytest.mark.parametrize("cut", range(18))
@pytest.mark.parametrize("keys", [{"key": "k"}, {"concurrency": "c"}, {"key": "k", "concurrency": "c"}])
def test_a_record_with_keys_that_was_cut_short_harms_no_other(
    store: RedisStore, look: Looking, cut: int, keys: dict[str, str]
) -> None:
    every = [message(name, limit=9, **keys | ({"key": name} if "key" in keys else {})) for name in "abc"]  # type: ignore[arg-type]
    store.enqueue(every)
    store.wire.command("HSET", look.key("records"), "b", look.hash("records")["b"][:cut])
    launch = Launch(store)
    launch.complete(*launch.reserve(9))
    assert look.ranked("dead_letters") == ["b"]
    assert look.listed("completed") == ["a", "c"]
    assert look.hash("places_taken") == {}


@pytest.mark.parametrize("cut", range(10, 24))
def test_a_record_that_was_cut_short_harms_no_other(store: RedisStore, look: Looking, cut: int) -> None:
    store.enqueue([chosen("a")._replace(headers=HEADERS), message("b")])
    store.wire.command("HSET", look.key("records"), "a", look.hash("records")["a"][:cut])
    launch = Launch(store)
    launch.complete(*launch.reserve(9))
    assert look.ranked("dead_letters") == ["a"]
    assert look.listed("completed") == ["b"]
    assert [each.duplicate for each in store.enqueue([chosen("a"), chosen("b")])] == [True, True]


def test_a_digest_of_another_length_in_an_outbox_is_not_sent_on(store: RedisStore) -> None:
    packed = pack([message("a", digest="a1")], 0)
    store.wire.command("RPUSH", store.keys.queue(QUEUE, "outbox"), packed)
    assert outbox.send(store, QUEUE, lambda *_: None) == 0
