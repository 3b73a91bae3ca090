"""A message that has ended, once more: what the new one has of it, what it has not, and what cannot be run again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import BadData, Context, NotFound, PollConsumer, QueueFull
from pollconsumer.audit import acting_as, interventions
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import MAX_HEADERS_BYTES
from pollconsumer.interface import cli, on_demand
from pollconsumer.store.actions import INSTEAD
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.records.rows import WRITTEN_BY_NEWER
from pollconsumer.testing import Sandbox
from tests.conftest import NAMESPACE
from tests.inner import calls_of

if TYPE_CHECKING:
    from pathlib import Path

    from pollconsumer import Handle
    from pollconsumer.core.messages.message import NewMessage
    from tests.site import Site
    from tests.store.servers import Server

OPTIONS: dict[str, Any] = {
    "queue": "mail", "priority": -3, "key": "k", "concurrency_key": "c", "concurrency_limit": 2, "rate_key": "r",
    "rate": "60/1h", "headers": {"customer": "7"}, "timeout": "1m30s", "max_attempts": 7, "retry": "slow",
}  # fmt: skip
GONE: dict[str, Any] = {"in_": "1h", "expires": "1d", "id": "a", "created_by": "ada"}
"""What the new message has not, or has otherwise."""


@pytest.fixture
def handled(app: PollConsumer) -> list[Any]:
    """What the handler ``work`` was given."""
    found: list[Any] = []
    app.retry_policy("slow", ["1h"])

    @app.handler
    def work(n: int, context: Context) -> int:
        found.append((n, context.previous and context.previous.result, context.batch))
        if n < 0:
            raise ValueError(n)
        return 2 * n

    return found


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[NewMessage]:
    """The messages that are enqueued."""
    found: list[NewMessage] = []
    enqueue = Producer.enqueue_one

    def enqueue_one(producer: Producer, message: NewMessage) -> Any:
        found.append(message)
        return enqueue(producer, message)

    monkeypatch.setattr(Producer, "enqueue_one", enqueue_one)
    return found


def test_it_has_handler_payload_and_options_of_the_first_is_due_now_and_says_which_that_was(
    app: PollConsumer, handled: list[Any], sent: list[NewMessage], sandbox: Sandbox
) -> None:
    first = app.enqueue("work", {"n": 4}, **OPTIONS, **GONE)
    sandbox.run_for("2h")
    assert first.state == "completed"
    again = first.rerun()
    before, after = sent
    assert (after.id, after.due, after.delay, after.lifetime, after.digest) == (again.id, None, None, 0, "")
    headers = {"customer": "7", "created-by": "rerun of a"}
    same = before._replace(id=after.id, delay=None, lifetime=0, digest="", headers=headers, rate=after.rate)
    assert after == same
    assert after.rate == "60/3600000ms"
    assert again.id != first.id
    assert again.duplicate is False
    sandbox.run()
    assert again.wait() == 8
    assert handled == [(4, None, None)] * 2
    assert first.status().result == 8


def test_an_order_key_goes_on(app: PollConsumer, handled: list[Any], sent: list[NewMessage], sandbox: Sandbox) -> None:
    first = app.enqueue("work", {"n": 4}, order_key="o")
    sandbox.run()
    assert first.rerun().status().order_key == "o"
    assert (sent[1].concurrency_key, sent[1].concurrency_limit, sent[1].rate_key) == ("", 1, "")
    assert len(handled) == 1


def ended(app: PollConsumer, sandbox: Sandbox, how: str, padding: str = "") -> Handle[Any]:
    """A message that has ended so."""
    n = -1 if how == "dead" else 4
    options: dict[str, Any] = {"expires": "1s"} if how == "expired" else {}
    handle = app.enqueue("work", {"n": n}, max_attempts=1, headers={"padding": padding or "x"}, **options)
    if how == "cancelled":
        handle.cancel()
    if how == "expired":
        sandbox.advance("5s")
    sandbox.run()
    assert handle.state == how
    return handle


ENDS = [state for state in State if state.has_ended]


@pytest.mark.parametrize("how", ENDS)
def test_whatever_has_ended_runs_again_and_stays_as_it_is(
    app: PollConsumer, handled: list[Any], sandbox: Sandbox, how: str
) -> None:
    first = ended(app, sandbox, how)
    before, count = first.status(), len(handled)
    again = [first.rerun(), asyncio.run(first.rerun_async())]
    sandbox.run()
    assert {each.state for each in again} == {"dead" if how == "dead" else "completed"}
    assert len(handled) == count + 2
    assert first.status() == before
    assert again[0].rerun().status().created_by == f"rerun of {again[0].id}"


@pytest.mark.parametrize("how", ENDS)
def test_of_a_large_message_only_a_dead_letter_runs_again(
    app: PollConsumer, handled: list[Any], sandbox: Sandbox, how: str
) -> None:
    first = ended(app, sandbox, how, "x" * 2000)
    if how == "dead":
        assert first.rerun().status().payload == {"n": -1}
        return
    with pytest.raises(
        BadData, match=f"cannot rerun: {first.id}; its payload is no longer kept: of messages over 1 KiB"
    ):
        first.rerun()
    assert [each.id for each in app.messages()] == [first.id]
    assert len(handled) == (how == "completed")


def test_what_has_not_ended_does_not_run_again(app: PollConsumer, handled: list[Any], sandbox: Sandbox) -> None:
    seen: list[str] = []

    @app.handler
    def itself(context: Context) -> None:
        with pytest.raises(BadData) as refusal:
            app.message(context.id).rerun()
        seen.append(str(refusal.value))

    later, ready = app.enqueue("work", {"n": 1}, in_="1h"), app.enqueue("work", {"n": 1})
    for each in (later, ready):
        state = each.state
        with pytest.raises(BadData) as refusal:
            each.rerun()
        assert isinstance(state, State)
        assert str(refusal.value) == f"cannot rerun: {each.id}; {INSTEAD[state]}"
    running = app.enqueue("itself")
    sandbox.run()
    assert seen == [f"cannot rerun: {running.id}; it is in flight: wait until it has ended"]
    assert len(handled) == 1
    with pytest.raises(NotFound, match="no such message: gone"):
        app.message(later.id)._again("mail", "gone").rerun()  # noqa: SLF001  a handle to a message that is not there


def test_a_unique_key_that_another_message_holds_refuses_it(
    app: PollConsumer, handled: list[Any], sandbox: Sandbox
) -> None:
    first = app.enqueue("work", {"n": 1}, key="k")
    sandbox.run()
    holder = app.enqueue("work", {"n": 2}, key="k")
    with pytest.raises(BadData, match=f"cannot rerun: {first.id}; {holder.id} has its unique key: wait until that has"):
        first.rerun()
    sandbox.run()
    again = first.rerun()
    assert app.enqueue("work", {"n": 3}, key="k").id == again.id
    assert len(handled) == 2


def test_what_followed_it_follows_it_again(app: PollConsumer, handled: list[Any], sandbox: Sandbox) -> None:
    @app.handler
    def callback(context: Context) -> None:
        assert context.previous is not None
        handled.append(("next", context.previous.result))

    first = app.enqueue("work", {"n": 1}, then=callback.args())
    sandbox.run()
    again = first.rerun()
    sandbox.run()
    assert handled[1:] == [("next", 2), handled[0], ("next", 2)]
    assert app.message(f"{again.id}:then").state == "completed"


def test_a_link_runs_again_with_the_links_behind_it_and_the_result_before_it(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    seen: list[Any] = []

    @app.handler
    def link(context: Context, name: str) -> str:
        seen.append((name, context.previous and context.previous.result))
        return name

    chain = app.chain(link.args("a"), link.args("b"), link.args("c")).enqueue()
    sandbox.run()
    whole = [("a", None), ("b", "a"), ("c", "b")]
    assert seen == whole
    assert chain.rerun().status().payload == {"name": "c"}
    sandbox.run()
    second = next(each for each in app.messages() if each.id.endswith("+2"))
    again = second.rerun()
    sandbox.run()
    assert seen[3:] == [("c", "b"), ("b", "a"), ("c", "b")]
    assert app.message(f"{again.id}+2").state == "completed"


def test_a_member_runs_again_outside_its_batch(app: PollConsumer, handled: list[Any], sandbox: Sandbox) -> None:
    @app.handler
    def member(context: Context) -> None:
        handled.append(context.batch and context.batch.id)

    callback = app.handler("callback")(lambda: handled.append("called"))
    with app.batch("b", ended=callback.args()) as batch:
        batch.add(member.args())
    sandbox.run()
    again = app.message("b.0").rerun()
    sandbox.run()
    assert handled == ["b", "called", None]
    assert again.status().batch is None
    assert app.batches.get("b").listed.total == 1


class Reversed:
    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    decode = encode


def test_an_encoded_payload_goes_on_as_it_is_without_the_codec() -> None:
    with_codec, without, seen = PollConsumer(codec=Reversed()), PollConsumer(), list[int]()
    with_codec.handler("work")(lambda n: seen.append(n))
    with Sandbox(with_codec, without) as sandbox:
        first = with_codec.enqueue("work", {"n": 5})
        sandbox.run()
        without.message(first.id).rerun()
        sandbox.run()
    assert seen == [5, 5]


def test_headers_that_leave_no_room_for_the_creator_are_an_error(
    app: PollConsumer, handled: list[Any], sandbox: Sandbox
) -> None:
    first = app.enqueue("work", {"n": -1}, max_attempts=1, headers={"h": "x" * (MAX_HEADERS_BYTES - 9)})
    sandbox.run()
    with pytest.raises(BadData, match=r"headers: 41.. bytes; at most 4096"):
        first.rerun()
    assert len(handled) == 1


def test_a_creator_by_whatever_name_gives_way(app: PollConsumer, handled: list[Any], sandbox: Sandbox) -> None:
    first = app.enqueue("work", {"n": 1}, headers={"Created_By": "ada"})
    sandbox.run()
    assert first.rerun().status().headers == {"created-by": f"rerun of {first.id}"}
    assert len(handled) == 1


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (b"Z" + bytes(9) + b"\0work\n{}", "a newer pollconsumer wrote it: use that one"),
        (b"A\0\x80\0" + bytes(7) + b"work\n[]", "it cannot be read"),
        (b"A\1\x80\0" + bytes(6) + b"\xffwork\n{}", "it cannot be read"),
        (b"A", "it cannot be read"),
    ],
)
def test_what_cannot_be_read_does_not_run_again(
    app: PollConsumer, handled: list[Any], sandbox: Sandbox, record: bytes, said: str
) -> None:
    first = app.enqueue("work", {"n": 1})
    sandbox.run()
    calls = calls_of(app)
    calls.ask(lambda store: store.wire.command("HSET", store.keys.queue("default", "records"), first.id, record))
    with pytest.raises(BadData, match=f"cannot rerun: {first.id}; {said}"):
        first.rerun()
    assert len(handled) == 1
    assert (first.status().last_error == WRITTEN_BY_NEWER) == said.startswith("a newer")


def test_a_redrive_of_what_is_completed_names_the_rerun(
    app: PollConsumer, handled: list[Any], sandbox: Sandbox
) -> None:
    first = app.enqueue("work", {"n": 1})
    with pytest.raises(BadData, match=r"it is ready, no dead letter$"):
        first.redrive()
    sandbox.run()
    with pytest.raises(BadData, match="it is completed, no dead letter: rerun runs it again"):
        first.redrive()
    assert len(handled) == 1


def test_who_acts_is_noted(app: PollConsumer, handled: list[Any], sandbox: Sandbox) -> None:
    first = app.enqueue("work", {"n": 1})
    sandbox.run()
    first.rerun()
    with acting_as("ada"):
        first.rerun()
    noted = [(each.who, each.what, each.queue, each.names) for each in interventions(app)]
    assert noted == [("ada", "rerun", "default", (first.id,))]
    assert len(handled) == 1


def test_it_goes_the_way_of_enqueueing_with_limits_of_the_queue_and_launches_on_demand(
    valkey: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[Any] = []
    monkeypatch.setattr(on_demand, "start_launch", starts.append)
    config = tmp_path / "config.toml"
    settings = 'consumer.on_demand = "process"\nqueues.default.max_ready = 1\n'
    config.write_text(f'store = "{valkey.url}"\nnamespace = "{NAMESPACE}"\n{settings}')
    app = PollConsumer(config=config)
    first = app.enqueue("work", {"n": 1}, queue="default", in_="1h")
    first.cancel()
    assert starts == []
    again = first.rerun()
    assert (len(starts), again.state) == (1, "ready")
    with pytest.raises(QueueFull, match="queue is full: default, 1 ready, 1 more; max_ready is 1"):
        first.rerun()
    assert cli.main(["--config", str(config), "rerun", first.id]) == QueueFull.exit_code


def test_the_shell_runs_messages_again_prints_their_ids_and_says_what_it_cannot(site: Site) -> None:
    done, waiting = site.enqueue("record", name="a"), site.enqueue("record", "--in", "1h", name="b")
    assert site.drain().returncode == 0
    again = site.command("rerun", done)
    assert (again.returncode, again.stderr) == (0, "")
    [new] = again.stdout.split()
    assert site.json("status", new)["created_by"] == f"rerun of {done}"
    refused = site.command("rerun", "none", done, waiting)
    assert (refused.returncode, len(refused.stdout.split())) == (65, 1)
    assert refused.stderr.splitlines() == [
        "pollconsumer: error: no such message: none; list shows those that are kept",
        f"pollconsumer: error: cannot rerun: {waiting}; {INSTEAD[State.SCHEDULED]}",
    ]
    assert site.command("rerun", "none").returncode == 66
    assert site.command("rerun").returncode == 2
    [told] = site.json("rerun", done, "--queue", "default")
    assert told == {"id": told["id"], "queue": "default", "rerun_of": done}
    refused = site.command("rerun", "none", "--json")
    assert (refused.returncode, refused.stdout) == (66, "")
    assert [each["what"] for each in site.json("audit")] == ["rerun"] * 3
    site.drain()
    assert site.notes() == ["a"] * 4
    refused = site.command("dead", "redrive", done)
    error = f"no such dead letter: {done}; the message is completed; 'pollconsumer rerun {done}' runs it again"
    assert (refused.returncode, refused.stderr) == (66, f"pollconsumer: error: {error}\n")
    assert json.loads(site.command("status", told["id"], "--json").stdout)["state"] == "completed"
