"""Bulk handlers: which messages go with one call, and how each of them ends."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer import BulkContext, Context, Fatal, Item, Partial, PollConsumer, RetryIn, Yield
from pollconsumer.core.errors import BadData, ConfigurationError
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.api.slips import check_arguments
from pollconsumer.runtime.session import bulk_calls
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records import rows
from pollconsumer.testing import Launched, Sandbox, StopReason
from tests.inner import registered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.store.reading.messages import Message
    from pollconsumer.store.records.reservations import Claim, Reservation


@dataclass
class Entry:
    path: str
    size: int


@dataclass
class Visit:
    path: str
    at: datetime


@pytest.fixture
def sandbox(app: PollConsumer) -> Iterator[Sandbox]:
    with Sandbox(app) as sandbox:
        yield sandbox


def number(message: Message) -> int:
    assert message.payload is not None
    return int(message.payload["n"])


def states(sandbox: Sandbox) -> list[str]:
    """By the number in the payload."""
    return [str(each.state) for each in sorted(sandbox.messages(), key=number)]


def errors(sandbox: Sandbox) -> set[str | None]:
    return {each.last_error for each in sandbox.messages()}


def test_messages_of_a_call_are_completed_when_it_returns(app: PollConsumer, sandbox: Sandbox) -> None:
    calls: list[list[int]] = []

    @app.handler("index", bulk=3)
    def index(messages: list[Item]) -> None:
        calls.append([each.payload["n"] for each in messages])

    index.enqueue_many([{"n": n} for n in range(7)])
    assert sandbox.run() == Launched(7, 0, 0, StopReason.EMPTY)
    assert calls == [[0, 1, 2], [3, 4, 5], [6]]


def test_an_item_tells_what_a_context_does(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[Item] = []

    @app.handler("index", bulk=3, max_attempts=2)
    def index(messages: list[Item]) -> None:
        seen.extend(messages)
        raise RetryIn(0)

    handle = index.using(headers={"customer": "7"}).enqueue(n=1)
    sandbox.run()
    assert seen == [Item({"n": 1}, handle.id, {"customer": "7"}, attempt) for attempt in (1, 2)]


def test_a_list_gives_results_by_position(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("index", bulk=3)
    def index(messages: list[Item]) -> list[int | None]:
        return [each.payload["n"] or None for each in messages]

    handles = index.enqueue_many([{"n": n} for n in range(4)])
    sandbox.run()
    assert [sandbox.message(each).result for each in handles] == [None, 1, 2, 3]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ([1], "ValueError: it returned 1 results; return None, or a list of 2 results, one of each message"),
        ("ab", "TypeError: it returned a str; return None, or a list of 2 results, one of each message"),
        (map(str, ()), "TypeError: it returned a map, which nobody runs; loop over it in the handler"),
    ],
)
def test_results_that_are_not_one_of_each_fail_all(
    app: PollConsumer, sandbox: Sandbox, result: object, said: str
) -> None:
    @app.handler("index", bulk=3, max_attempts=1)
    def index(messages: list[Item]) -> object:
        del messages
        return result

    index.enqueue_many([{"n": n} for n in range(2)])
    assert sandbox.run().failed == 2
    assert (states(sandbox), errors(sandbox)) == (["dead"] * 2, {said})


def test_an_exception_costs_each_message_an_attempt_of_its_own_number(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("index", bulk=3, max_attempts=2)
    def index(messages: list[Item]) -> None:
        del messages
        raise ValueError("no")

    index.enqueue(n=0)
    index.using(max_attempts=1).enqueue(n=1)
    sandbox.run()
    assert (states(sandbox), errors(sandbox)) == (["scheduled", "dead"], {"ValueError: no"})
    sandbox.run_for("1m")
    assert states(sandbox) == ["dead", "dead"]


def test_a_partial_failure_retries_the_named_messages_alone(app: PollConsumer, sandbox: Sandbox) -> None:
    calls: list[list[int]] = []

    @app.handler("index", bulk=4, fatal=KeyError)
    def index(messages: list[Item]) -> None:
        calls.append([each.payload["n"] for each in messages])
        if len(calls) == 1:
            raise Partial({0: ValueError("no"), 1: Fatal("never"), 3: KeyError("nor")})

    index.enqueue_many([{"n": n} for n in range(4)])
    assert sandbox.run() == Launched(1, 3, 0, StopReason.EMPTY)
    assert states(sandbox) == ["scheduled", "dead", "completed", "dead"]
    sandbox.run_for("1m")
    assert calls == [[0, 1, 2, 3], [0]]


def test_a_partial_failure_of_a_message_that_is_not_there_fails_all(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("index", bulk=4, max_attempts=1)
    def index(messages: list[Item]) -> None:
        raise Partial({0: ValueError("no"), len(messages): ValueError("no")})

    index.enqueue_many([{"n": n} for n in range(2)])
    sandbox.run()
    assert states(sandbox) == ["dead"] * 2
    assert errors(sandbox) == {"IndexError: Partial names message 2, and the call had 2; the first one is 0"}


@pytest.mark.parametrize("errors", [{-1: ValueError()}, {True: ValueError()}, {"0": ValueError()}, {0: "no"}])
def test_a_partial_failure_takes_positions_and_exceptions(errors: Any) -> None:
    with pytest.raises(TypeError, match="Partial: "):
        Partial(errors)


@pytest.mark.parametrize(
    ("error", "left"), [(Fatal("never"), "dead"), (RetryIn("2h"), "scheduled"), (Yield(), "ready")]
)
def test_what_a_handler_raises_holds_for_all_messages(
    app: PollConsumer, sandbox: Sandbox, error: Exception, left: str
) -> None:
    @app.handler("index", bulk=4)
    def index(messages: list[Item]) -> None:
        del messages
        raise error

    index.enqueue_many([{"n": n} for n in range(3)])
    sandbox.run()
    assert states(sandbox) == [left] * 3
    assert {each.attempts for each in sandbox.messages()} == {0 if left == "ready" else 1}


@pytest.mark.parametrize("form", [list[Entry], list[Item[Entry]]])
def test_a_message_that_does_not_fit_the_annotation_is_dead_alone(
    app: PollConsumer, sandbox: Sandbox, form: Any
) -> None:
    seen: list[Any] = []

    def index(messages: Any) -> None:
        seen.extend(messages)
        raise Partial({1: ValueError("no")})

    index.__annotations__["messages"] = form
    for n, size in enumerate([1, "many", 2]):  # by a producer that has not the handler
        app.enqueue("index", {"n": n, "path": f"{n}", "size": size})
    app.handler("index", bulk=5)(index)
    sandbox.run()
    entries = [each.payload if isinstance(each, Item) else each for each in seen]
    assert entries == [Entry("0", 1), Entry("2", 2)]
    assert states(sandbox) == ["completed", "dead", "scheduled"]
    (dead,) = sandbox.messages("dead")
    assert dead.last_error is not None
    assert re.fullmatch(r"bad_arguments: payload.size: .* integer", dead.last_error)


def test_a_call_is_not_made_without_a_message_that_fits(app: PollConsumer, sandbox: Sandbox) -> None:
    app.enqueue("index", {"n": 0})  # by a producer that has not the handler

    @app.handler("index", bulk=5)
    def index(messages: list[Entry]) -> None:
        raise AssertionError(messages)

    sandbox.run(raising=False)
    assert states(sandbox) == ["dead"]


def test_an_asynchronous_handler_is_given_several(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("index", bulk=5, timeout="10s")
    async def index(messages: list[Item]) -> list[int]:
        if len(messages) == 2:
            raise Partial({0: ValueError("no")})
        return [each.payload["n"] for each in messages]

    index.enqueue_many([{"n": n} for n in range(7)])
    sandbox.run()
    assert states(sandbox) == ["completed"] * 5 + ["scheduled", "completed"]


def test_messages_between_others_go_with_one_call_and_the_others_keep_their_order(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    acts: list[object] = []

    @app.handler("index", bulk=10)
    def index(messages: list[Item]) -> None:
        acts.append([each.payload["n"] for each in messages])

    @app.handler
    def plain(n: int) -> None:
        acts.append(n)

    for n in range(6):
        (index if n % 2 else plain).enqueue(n=n)
    sandbox.run()
    assert [each for each in acts if isinstance(each, int)] == [0, 2, 4]
    assert [each for each in acts if isinstance(each, list)] == [[1, 3, 5]]


def test_a_call_waits_for_more_messages_while_others_are_handled(app: PollConsumer, sandbox: Sandbox) -> None:
    began = sandbox.now
    acts: list[tuple[object, float]] = []

    def note(what: object) -> None:
        acts.append((what, (sandbox.now - began).total_seconds()))

    @app.handler("index", bulk=3, bulk_wait="2s")
    def index(messages: list[Item]) -> None:
        note([each.payload["n"] for each in messages])

    @app.handler
    def plain() -> None:
        note("plain")

    index.enqueue(n=0)
    plain.using(in_="1s").enqueue()
    index.using(in_="1.5s").enqueue(n=1)
    for n, seconds in [(2, 10), (3, 11), (4, 11), (5, 20)]:
        index.using(in_=seconds).enqueue(n=n)
    sandbox.run(until_empty=False)
    assert acts == [("plain", 1.0), ([0, 1], 2.0), ([2, 3, 4], 11.0), ([5], 22.0)]


def test_a_call_is_made_in_virtual_time_when_its_wait_is_over(app: PollConsumer, sandbox: Sandbox) -> None:
    calls = list[tuple[float, int]]()
    began = sandbox.now

    @app.handler(bulk=10, bulk_wait="5s")
    def index(messages: list[Item]) -> None:
        calls.append(((sandbox.now - began).total_seconds(), len(messages)))

    index.enqueue_many([{"x": 1}, {"x": 2}])
    index.using(in_="3s").enqueue(x=3)
    index.using(in_="1m").enqueue(x=4)
    assert sandbox.run_for("10m") == (4, 0, 0, StopReason.INTERRUPTED)
    assert calls == [(5.0, 3), (65.0, 1)]


def test_a_call_does_not_wait_where_the_launch_ends_once_the_queue_is_empty(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    began = sandbox.now

    @app.handler("index", bulk=3, bulk_wait="2s")
    def index(messages: list[Item]) -> None: ...

    index.enqueue(n=0)
    assert (sandbox.run().handled, sandbox.now) == (1, began)


def test_a_call_does_not_wait_beyond_the_window(app: PollConsumer, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[consumer]\ntimeout = 10\nmin_margin = 1\n")
    at: list[float] = []

    @app.handler("index", bulk=3, bulk_wait="20s")
    def index(messages: list[Item]) -> None:
        del messages
        at.append((sandbox.now - began).total_seconds())

    with Sandbox(app, config=tmp_path / "config.toml") as sandbox:
        began = sandbox.now
        index.enqueue(n=0)
        index.using(in_="4s").enqueue(n=1)
        assert sandbox.run(until_empty=False).handled == 2
    assert at == [0.0, 4.0]


@pytest.mark.parametrize("limit", ["max_in_flight = 2", 'quota = "2/1h"'])
def test_a_call_does_not_wait_for_messages_that_limits_hold_back(app: PollConsumer, tmp_path: Path, limit: str) -> None:
    (tmp_path / "config.toml").write_text(f"[queues.default]\n{limit}\n")
    calls: list[tuple[int, float]] = []

    @app.handler("index", bulk=3, bulk_wait="20s")
    def index(messages: list[Item]) -> None:
        calls.append((len(messages), (sandbox.now - began).total_seconds()))

    with Sandbox(app, config=tmp_path / "config.toml") as sandbox:
        began = sandbox.now
        index.enqueue_many([{"n": n} for n in range(3)])
        sandbox.run(until_empty=False)
    assert calls[0] == (2, 0.0)
    assert sum(size for size, _ in calls) == (3 if "max_in_flight" in limit else 2)


def test_messages_of_one_concurrency_key_do_not_share_a_call(app: PollConsumer, sandbox: Sandbox) -> None:
    calls: list[list[int]] = []

    @app.handler("index", bulk=10)
    def index(messages: list[Item]) -> None:
        calls.append([each.payload["n"] for each in messages])

    for n in range(4):
        index.using(concurrency_key=f"{n % 2}").enqueue(n=n)
    sandbox.run()
    assert calls == [[0, 1], [2, 3]]


def test_a_call_has_one_message_of_an_order_key(app: PollConsumer, sandbox: Sandbox) -> None:
    calls: list[list[int]] = []

    @app.handler("index", bulk=10)
    def index(messages: list[Item]) -> None:
        calls.append([each.payload["n"] for each in messages])

    for n in range(4):
        index.using(order_key=f"{n % 2}").enqueue(n=n)
    sandbox.run()
    assert calls == [[0, 1], [2, 3]]


@pytest.mark.parametrize("on_dead", ["pass", "hold"])
def test_those_behind_a_dead_letter_go_on_or_wait_for_a_person(
    app: PollConsumer, sandbox: Sandbox, on_dead: Literal["pass", "hold"]
) -> None:
    handled: list[int] = []

    @app.handler(order_on_dead=on_dead)
    def follow(n: int) -> None:
        if n == 0 and not handled:
            handled.append(-1)
            raise Fatal("no")
        handled.append(n)

    first, second = (follow.using(order_key="k").enqueue(n=n) for n in range(2))
    sandbox.run()
    assert handled == ([-1, 1] if on_dead == "pass" else [-1])
    first.redrive()
    sandbox.run()
    assert handled == ([-1, 1, 0] if on_dead == "pass" else [-1, 0, 1])
    assert second.state == "completed"


def test_what_waits_for_a_call_is_released_uncharged_when_the_launch_stops(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("index", bulk=10, bulk_wait="20s")
    def index(messages: list[Item]) -> None: ...

    @app.handler
    def stop(n: int) -> None:
        raise ValueError(n)

    index.enqueue_many([{"n": n} for n in range(3)])
    stop.using(in_="5s", max_attempts=1).enqueue(n=3)
    with pytest.raises(ValueError, match="3"):
        sandbox.run(until_empty=False, raising=True)
    assert states(sandbox) == ["ready"] * 3 + ["dead"]
    assert {each.attempts for each in sandbox.messages("ready")} == {0}
    assert [*map(number, sandbox.messages("ready"))] == [0, 1, 2]


def test_a_launch_of_few_messages_calls_with_no_more(app: PollConsumer, sandbox: Sandbox) -> None:
    calls: list[int] = []

    @app.handler("index", bulk=4)
    def index(messages: list[Item]) -> None:
        calls.append(len(messages))

    index.enqueue_many([{"n": n} for n in range(10)])
    assert sandbox.run(max_messages=6).handled == 6
    assert calls == [4, 2]


def test_a_call_has_no_more_messages_than_end_within_the_window(app: PollConsumer, tmp_path: Path) -> None:
    """By the durations of calls of its size: what single messages took, which were many, says too little of it."""
    (tmp_path / "config.toml").write_text("[consumer]\ntimeout = 60\n")
    calls: list[tuple[int, float]] = []

    @app.handler("index", bulk=16)
    def index(messages: list[Item]) -> None:
        sandbox.advance(len(messages))
        calls.append((len(messages), (sandbox.now - began).total_seconds()))

    @app.handler
    def brief() -> None:
        sandbox.advance("1ms")

    with Sandbox(app, config=tmp_path / "config.toml") as sandbox:
        began = sandbox.now
        brief.enqueue_many([{}] * 500)
        index.enqueue_many([{"n": n} for n in range(100)])
        sandbox.run()
    sizes = [size for size, _ in calls]
    assert sizes[:2] == [16, 16]
    assert 1 < max(sizes[2:]) < 8
    assert 45 < calls[-1][1] <= 60


def test_a_message_with_its_own_timeout_is_called_alone(app: PollConsumer, sandbox: Sandbox) -> None:
    calls: list[tuple[list[int], bool]] = []

    @app.handler("index", bulk=10)
    def index(messages: list[Item], context: BulkContext) -> None:
        calls.append(([each.payload["n"] for each in messages], context.time_left() <= 5))

    index.enqueue(n=0)
    index.using(timeout="5s", max_attempts=2).enqueue(n=1)
    index.using(max_attempts=2, headers={"a": "b"}).enqueue(n=2)
    sandbox.run()
    assert sorted(calls) == [([0, 2], False), ([1], True)]


def test_messages_that_are_handled_at_most_once_share_a_call(app: PollConsumer, sandbox: Sandbox) -> None:
    calls: list[int] = []

    @app.handler("index", bulk=3, delivery="at_most_once")
    def index(messages: list[Item]) -> None:
        calls.append(len(messages))
        raise Partial({1: ValueError("no")})

    index.enqueue_many([{"n": n} for n in range(3)])
    sandbox.run()
    assert calls == [3]
    assert states(sandbox) == ["completed", "dead", "completed"]


def test_messages_are_recorded_before_a_call_at_most_once(app: PollConsumer, sandbox: Sandbox) -> None:
    store, begun = sandbox.store_of(app), list[bool]()

    @app.handler("index", bulk=3, delivery="at_most_once")
    def index(messages: list[Item]) -> None:
        found = store.wire.command("HMGET", store.keys.queue("default", "rows"), *(each.id for each in messages))
        begun.extend(bool(row[rows.FLAGS] & rows.BEGUN) for row in found)

    index.enqueue_many([{"n": n} for n in range(3)])
    sandbox.run()
    assert begun == [True] * 3


def test_a_message_whose_reservation_was_lost_is_not_in_a_call_at_most_once(
    app: PollConsumer, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is offered again, as an orphan."""
    calls: list[list[int]] = []
    begin = RedisStore.begin

    @app.handler("index", bulk=3, delivery="at_most_once")
    def index(messages: list[Item]) -> None:
        calls.append([each.payload["n"] for each in messages])

    def lose_the_second(store: RedisStore, claim: Claim, reservations: list[Reservation], *runs: Any) -> object:
        monkeypatch.setattr(RedisStore, "begin", begin)
        key, (_, lost, _) = store.keys.queue("default", "rows"), reservations
        row = store.wire.command("HGET", key, lost.id)
        is_anothers = row[: rows.FENCE] + rows.pack6(9) + row[rows.RESERVED :]
        store.wire.command("HSET", key, lost.id, is_anothers)
        return begin(store, claim, reservations, *runs)

    index.enqueue_many([{"n": n} for n in range(3)])
    monkeypatch.setattr(RedisStore, "begin", lose_the_second)
    sandbox.run()
    assert calls == [[0, 2], [1]]


def test_payloads_of_a_call_have_so_many_bytes_at_most(
    app: PollConsumer, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is larger alone is called alone."""
    monkeypatch.setattr(bulk_calls, "MOST_BYTES", 100)
    calls: list[list[int]] = []

    @app.handler("index", bulk=9)
    def index(messages: list[Item]) -> None:
        calls.append([len(each.payload["text"]) for each in messages])

    index.enqueue_many([{"text": "x" * size} for size in (20, 30, 40, 500, 10)])
    sandbox.run()
    assert calls == [[20, 30], [40], [500], [10]]


def test_a_message_of_a_call_that_is_to_stop_is_cancelled_if_it_is_not_completed(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    @app.handler("index", bulk=3)
    def index(messages: list[Item]) -> None:
        for handle in handles[:2]:
            handle.stop()
        raise Partial({n: ValueError("no") for n in range(1, len(messages))})

    handles = index.enqueue_many([{"n": n} for n in range(3)])
    sandbox.run()
    assert states(sandbox) == ["completed", "cancelled", "scheduled"]


def test_hooks_are_called_for_each_message(app: PollConsumer, sandbox: Sandbox) -> None:
    heard: list[tuple[object, ...]] = []
    app.before(lambda context: heard.append(("before", context.headers["n"])))
    app.after(lambda context, result: heard.append(("after", context.headers["n"], result)))
    app.on_failure(lambda context, error, _: heard.append(("failure", context.headers["n"], str(error))))
    app.on_dead(lambda context, error: heard.append(("dead", context.headers["n"], str(error))))

    @app.handler("index", bulk=3)
    def index(messages: list[Item]) -> None:
        del messages
        raise Partial({1: ValueError("no"), 2: Fatal("never")})

    for n in range(3):
        index.using(headers={"n": str(n)}).enqueue()
    sandbox.run()
    assert heard == [
        *(("before", f"{n}") for n in range(3)),
        ("after", "0", None),
        ("failure", "1", "no"),
        ("dead", "2", "never"),
    ]


def test_hooks_of_a_call_enqueue_nothing_with_a_completion(
    app: PollConsumer, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    app.before(lambda context: context.enqueue("index"))

    @app.handler("index", bulk=3)
    def index(messages: list[Item]) -> None: ...

    index.enqueue()
    assert sandbox.run().handled == 1
    assert "context.enqueue in a bulk call: index; nothing is sent with the completion" in caplog.text


def test_a_command_refuses_a_payload_that_does_not_fit(app: PollConsumer) -> None:
    @app.handler("index", bulk=3)
    def index(messages: list[Item[Entry]]) -> None: ...

    check_arguments(registered(index), {"path": "a", "size": 1})
    with pytest.raises(BadData, match=re.escape("arguments of index: payload.size: ")):
        check_arguments(registered(index), {"path": "a", "size": "many"})


def test_a_producer_is_refused_a_payload_that_does_not_fit(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("index", bulk=3)
    def index(messages: list[Item[Entry]]) -> None: ...

    good: dict[str, Any] = {"path": "a", "size": 1}
    bad: dict[str, Any] = {"path": "a", "size": "many"}
    for enqueue in (
        lambda: index.enqueue(**bad),
        lambda: index.args(**bad),
        lambda: index.using(priority=1).enqueue(**bad),
        lambda: index.enqueue_many([good, bad]),
        lambda: app.enqueue("index", bad),
        lambda: index.enqueue(path="a"),
    ):
        with pytest.raises(TypeError, match=r"arguments of .*index\(\): payload.size: "):
            enqueue()
    assert sandbox.messages() == []
    index.enqueue_many([good, index.args(**good)])
    with app.batch("b") as batch:
        batch.add(index.args(**good))
    sandbox.run()
    assert {str(each.state) for each in sandbox.messages()} == {"completed"}


def test_a_value_without_a_json_form_is_written_as_the_annotation_says(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[Visit] = []

    @app.handler("index", bulk=3)
    def index(messages: list[Visit]) -> None:
        seen.extend(messages)

    at = datetime(2026, 11, 27, 8, tzinfo=UTC)
    index.enqueue(path="a", at=at)
    index.enqueue_many([{"path": "b", "at": at}])
    app.enqueue("index", {"path": "c", "at": at})
    sandbox.run()
    assert seen == [Visit("a", at), Visit("b", at), Visit("c", at)]


def test_a_handler_is_called_directly(app: PollConsumer) -> None:
    @app.handler("index", bulk=3)
    def index(messages: list[Item[Entry]]) -> int:
        return sum(each.payload.size for each in messages)

    assert index([Item(Entry("a", n)) for n in (1, 2)]) == 3


def nothing(messages: list[Item]) -> None: ...


def with_context(messages: list[Item], context: Context) -> None: ...


def with_occurrence(messages: list[Item], occurrence: datetime) -> None: ...


def without_annotation(messages) -> None: ...  # type: ignore[no-untyped-def]


def of_texts(messages: list[str]) -> None: ...


def of_items_of_texts(messages: list[Item[str]]) -> None: ...


def of_one(message: Item) -> None: ...


def by_name(*, messages: list[Item]) -> None: ...


def generating(messages: list[Item]) -> Iterator[int]:
    yield len(messages)


FORMS = "; annotate it: list[Item], list[dict], list[Item[Model]] or list[Model]"
ONE_LIST = "; a bulk handler takes the list of its messages, and context: BulkContext if it wants that"


class Refused(NamedTuple):
    function: Callable[..., object]
    options: dict[str, Any]
    said: str


@pytest.mark.parametrize(
    "refused",
    [
        Refused(nothing, {"bulk": 1}, "bulk: 1; a whole number from 2 to 500"),
        Refused(nothing, {"bulk": True}, "bulk: True; a whole number from 2 to 500"),
        Refused(nothing, {"bulk": 3, "bulk_wait": "soon"}, "bulk_wait: 'soon'; "),
        Refused(nothing, {"bulk_wait": 1}, "bulk_wait: 1; give the greatest number of messages of a call, as bulk=200"),
        Refused(with_context, {"bulk": 3}, "parameter context of with_context; a bulk call has no context of one"),
        Refused(with_occurrence, {"bulk": 3}, f"bulk handler: with_occurrence{ONE_LIST}"),
        Refused(by_name, {"bulk": 3}, f"bulk handler: by_name{ONE_LIST}"),
        Refused(without_annotation, {"bulk": 3}, f"parameter messages of without_annotation{FORMS}"),
        Refused(of_texts, {"bulk": 3}, f"parameter messages of of_texts: list[str]{FORMS}"),
        Refused(of_items_of_texts, {"bulk": 3}, "parameter messages of of_items_of_texts: list["),
        Refused(of_one, {"bulk": 3}, "parameter message of of_one: <class"),
        Refused(
            generating, {"bulk": 3}, "handler index: generating; it is a generator function, whose call runs nothing"
        ),
    ],
    ids=lambda refused: f"{refused.function.__name__} {refused.options}",
)
def test_a_handler_that_cannot_be_given_several_is_refused(app: PollConsumer, refused: Refused) -> None:
    with pytest.raises(ConfigurationError) as caught:
        app.handler("index", **refused.options)(refused.function)
    assert str(caught.value).startswith(refused.said)


def test_a_recurring_handler_is_given_one_message(app: PollConsumer) -> None:
    with pytest.raises(ConfigurationError, match=r"bulk= of @app\.every; leave it out: an occurrence is one message"):
        app.every("1m", bulk=3)  # type: ignore[call-arg]


def test_the_example_of_the_documentation_does_what_the_page_says() -> None:
    text = (Path(__file__).parents[2] / "docs" / "bulk.md").read_text("utf-8")
    written: list[dict[str, Any]] = []

    class Search:
        def write(self, entries: list[dict[str, Any]]) -> dict[int, str]:
            written.extend(entries)
            return {1: "too long"} if len(entries) > 1 else {}

    names: dict[str, Any] = {"search": Search(), "paths": ["a", "b"], "read": str.upper}
    with registry.afresh():
        exec("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:1]), names)
    with Sandbox(names["app"]) as sandbox:
        exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[1], names)
        sandbox.run()
        assert written == [{"path": "a", "text": "A"}, {"path": "b", "text": "B"}]
        assert [each.last_error for each in sandbox.messages("scheduled")] == ["ValueError: too long"]
        assert len(sandbox.messages("completed")) == 1


@pytest.mark.crossing
@given(
    sizes=st.lists(st.sampled_from([1, 2, "bad"]), min_size=1, max_size=6),
    failing=st.dictionaries(st.integers(0, 7), st.sampled_from(["scheduled", "dead", "ready"]), max_size=4),
    returns=st.none() | st.lists(st.integers(), max_size=6),
)
def test_each_message_ends_in_exactly_one_way(
    sizes: list[Any], failing: dict[int, str], returns: list[int] | None
) -> None:
    raised = {"scheduled": ValueError("no"), "dead": Fatal("never"), "ready": Yield()}
    with registry.afresh():
        app = PollConsumer()

    def index(messages: list[Item[Entry]]) -> list[int] | None:
        del messages
        if failing:
            raise Partial({n: raised[end] for n, end in failing.items()})
        return returns

    fitting = [n for n, size in enumerate(sizes) if size != "bad"]
    wanted = ["dead" if size == "bad" else "completed" for size in sizes]
    everything_fails = any(n >= len(fitting) for n in failing) if failing else returns is not None
    if not failing and returns is not None:
        everything_fails = len(returns) != len(fitting)
    for place, n in enumerate(fitting):
        wanted[n] = "scheduled" if everything_fails else failing.get(place, "completed")
    with Sandbox(app) as sandbox:
        for n, size in enumerate(sizes):
            app.enqueue("index", {"n": n, "path": "", "size": size})  # not checked yet
        app.handler("index", bulk=10)(index)
        launched = sandbox.run()
        assert states(sandbox) == wanted
        assert launched.handled == wanted.count("completed")
        assert launched.failed == wanted.count("dead") + wanted.count("scheduled")
        assert launched.released == wanted.count("ready")


class Arrival(NamedTuple):
    """A message that is due ``at`` a second, and takes its call ``lasts`` seconds."""

    at: int
    lasts: float
    is_bulk: bool


@given(
    arrivals=st.lists(
        st.builds(Arrival, st.integers(0, 40), st.sampled_from([0.0, 0.5, 3.0]), st.booleans()), max_size=20
    ),
    bulk=st.integers(2, 6),
    wait=st.sampled_from([0, 2, 100]),
    max_messages=st.none() | st.integers(1, 10),
)
def test_each_message_is_handled_once_in_order_or_released_uncharged(
    arrivals: list[Arrival], bulk: int, wait: int, max_messages: int | None
) -> None:
    with registry.afresh():
        app = PollConsumer()
    calls: list[list[int]] = []

    def handle(*numbers: int) -> None:
        calls.append([*numbers])
        box.advance(sum(arrivals[n].lasts for n in numbers))

    @app.handler("index", bulk=bulk, bulk_wait=wait)
    def index(messages: list[Item]) -> None:
        handle(*(each.payload["n"] for each in messages))

    @app.handler
    def plain(n: int) -> None:
        handle(n)

    with Sandbox(app) as box:
        for n, each in enumerate(arrivals):
            (index if each.is_bulk else plain).using(in_=each.at).enqueue(n=n)
        box.run(until_empty=False, max_messages=max_messages)
        handled = [n for numbers in calls for n in numbers]
        assert len(handled) == len({*handled}) <= (max_messages or len(arrivals))
        assert all(len(numbers) <= bulk for numbers in calls)
        of_bulk = [n for n in handled if arrivals[n].is_bulk]
        assert of_bulk == sorted(of_bulk, key=lambda n: (arrivals[n].at, n))
        for message in box.messages():
            ended = str(message.state) == "completed"
            assert (number(message) in handled, message.attempts) == (ended, int(ended))
