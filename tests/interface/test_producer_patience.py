"""What a call of a producer may cost when the store is away, in time and in what the next call finds."""

from __future__ import annotations

from errno import ECONNREFUSED, ETIMEDOUT
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Conflict, OutcomeUnknown, PollConsumer, StoreUnreachable
from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.store_calls import CallPatience
from pollconsumer.store.client.patience import STEP
from pollconsumer.store.queues.producer import ENQUEUE_PAGE, ENQUEUE_PAGES
from tests.inner import calls_of
from tests.interface.away import Clock, Connection, application

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.store.servers import Server


def each_call_of(app: PollConsumer) -> dict[str, Callable[[], object]]:
    handle: Handle[None] = Handle("a", "default", calls_of(app), duplicate=False)
    return {
        "one": lambda: app.enqueue("x", queue="default"),
        "state": lambda: handle.state,
        "wait": handle.wait,
    }


@pytest.mark.parametrize("call", ["one", "state", "wait"])
@pytest.mark.parametrize("patience", [0.05, 1.0, 3.0])
def test_a_store_that_accepts_and_never_answers_costs_the_patience(call: str, patience: float) -> None:
    clock = Clock()

    def never(timeout: float) -> None:
        clock.now += timeout
        raise TimeoutError(ETIMEDOUT, "no answer")

    app = application(clock, patience, lambda: Connection(never))
    with pytest.raises(StoreUnreachable) as caught:
        each_call_of(app)[call]()
    assert isinstance(caught.value, OutcomeUnknown) == (call == "one")
    assert patience <= clock.now <= patience + STEP


@pytest.mark.parametrize("call", ["one", "state", "wait"])
def test_a_store_that_nothing_listens_for_costs_the_patience(call: str) -> None:
    clock = Clock()

    def refused(timeout: float) -> None:  # noqa: ARG001  at once
        raise ConnectionRefusedError(ECONNREFUSED, "refused")

    def connect() -> Connection:
        connection = Connection(refused)
        connection.connect = refused
        return connection

    app = application(clock, 1.0, connect)
    with pytest.raises(StoreUnreachable) as caught:
        each_call_of(app)[call]()
    assert not isinstance(caught.value, OutcomeUnknown)
    assert clock.now == 1.0


@pytest.mark.parametrize("patience", ["10ms", 0.01])
def test_a_real_store_that_is_away_is_unreachable(patience: str | float) -> None:
    app = PollConsumer(store="redis://127.0.0.1:1", patience=patience)
    with pytest.raises(StoreUnreachable, match=r"store unreachable: redis://127\.0\.0\.1:1"):
        app.enqueue("x")


@pytest.mark.parametrize(
    ("patience", "text"),
    [
        ("soon", "patience: 'soon'; units are ms, s, m, h, d, as in 500ms, 2s or 1m30s"),
        (0, "patience: 0; must be > 0, and at most 365d"),
        (-1, "patience: -1; must be 0 or more, and finite"),
        (True, "patience: True; must be seconds, text such as 1m30s, or a timedelta, not bool"),
        (None, "patience: None; "),
    ],
)
def test_an_invalid_patience_is_refused(patience: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        PollConsumer(patience=patience)
    assert str(caught.value).startswith(text)


def test_a_bulk_enqueue_has_its_patience_for_each_round_trip_and_says_what_was_accepted() -> None:
    clock = Clock()
    left = 12 * ENQUEUE_PAGES

    def slow(timeout: float) -> list[bytes]:
        nonlocal left
        clock.now += 0.3
        left -= 1
        if left < 0:
            clock.now += timeout
            raise TimeoutError(ETIMEDOUT, "no answer")
        return [b""] * ENQUEUE_PAGE

    app = application(clock, 1.0, lambda: Connection(slow))

    @app.handler
    def note(n: int) -> None: ...

    ids = [handle.id for handle in note.enqueue_many([{"n": n} for n in range(3000)])]
    assert (len(set(ids)), clock.now > 5) == (3000, True)
    before = clock.now
    with pytest.raises(OutcomeUnknown) as caught:
        note.enqueue_many([{"n": n} for n in range(1000)])
    assert (len(caught.value.accepted), len(caught.value.ids)) == (600, 300)
    assert clock.now <= before + 3 * ENQUEUE_PAGES * 0.3 + 1.0 + STEP


def test_a_conflict_in_a_later_round_trip_is_counted_from_the_first_message(valkey: Server) -> None:
    app = PollConsumer(store=valkey.url)
    messages = [app_message(n) for n in range(701)]
    app.enqueue("other", id="m650")
    with pytest.raises(Conflict) as caught:
        calls_of(app).enqueue_messages(messages)
    assert (caught.value.id, caught.value.at) == ("m650", 650)
    assert caught.value.accepted == [f"m{n}" for n in range(len(caught.value.accepted))]
    assert len(caught.value.accepted) == 600


def app_message(n: int) -> Any:
    from pollconsumer.runtime.new_messages import new_message

    return new_message("x", {}, id=f"m{n}")


def test_a_call_that_is_interrupted_leaves_no_reply_to_the_next() -> None:
    connections: list[Connection] = []

    def interrupted(timeout: float) -> None:  # noqa: ARG001  by Ctrl-C
        raise KeyboardInterrupt

    def answered(timeout: float) -> list[bytes]:  # noqa: ARG001  at once
        return [b""]

    def connect() -> Connection:
        connections.append(Connection(answered if connections else interrupted))
        return connections[-1]

    app = application(Clock(), 1.0, connect)
    with pytest.raises(KeyboardInterrupt):
        app.enqueue("x", queue="default")
    assert not app.enqueue("x", queue="default").duplicate
    assert len(connections) == 2


def test_the_timeout_of_an_answer_stays_the_same_from_call_to_call() -> None:
    clock = Clock()
    seconds = []
    for patience in (5.0, 1.0, 0.05):
        for_call = CallPatience(patience, clock)
        for_call.begin()
        clock.now += 0.0001
        seconds.append(for_call.for_one_answer())
    assert seconds == [2.0, pytest.approx(1.0), STEP]
