"""What `enqueue` does with a spool while the store is away."""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import OutcomeUnknown, PollConsumer, StoreUnreachable
from pollconsumer.core.errors import NotCompleted, NotFound, NotReplicated
from pollconsumer.runtime.spool import Intake, Spool
from pollconsumer.store.queues.producer import Producer
from pollconsumer.web import LaunchEndpoint
from tests.inner import calls_of, handler_named
from tests.web.conftest import ENQUEUE_TOKEN, posted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pollconsumer.core.messages.message import NewMessage
    from tests.store.servers import Server


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Of a configuration with a spool, and a store that nothing listens for."""
    config = tmp_path / "config.toml"
    config.write_text(f'namespace = "tests"\nstore = "unix://{tmp_path}/s"\nspool = "spool"\n')
    return config


@pytest.fixture
def away(place: Path) -> PollConsumer:
    app = PollConsumer(config=place, patience=0.01)

    @app.handler
    def rec(n: int) -> int:
        return n

    return app


@pytest.fixture
def spool(place: Path) -> Spool:
    return Spool(place.parent / "spool", "tests")


def spooled(spool: Spool) -> list[NewMessage]:
    with spool.taken() as files:
        return [message for file in files for message in spool.read(file)]


CALLS: dict[str, Callable[[PollConsumer], Any]] = {
    "by handler": lambda app: [handler_named(app, "rec").enqueue(n=1)],
    "with options": lambda app: [handler_named(app, "rec").using(priority=2, id="a").enqueue(n=1)],
    "by name": lambda app: [app.enqueue("rec", {"n": 1})],
    "many": lambda app: handler_named(app, "rec").enqueue_many([{"n": 1}, {"n": 2}]),
    "async": lambda app: [asyncio.run(handler_named(app, "rec").enqueue_async(n=1))],
    "async by name": lambda app: [asyncio.run(app.enqueue_async("rec", {"n": 1}))],
    "many async": lambda app: asyncio.run(handler_named(app, "rec").enqueue_many_async([{"n": 1}, {"n": 2}])),
    "with a callback": lambda app: [
        handler_named(app, "rec").using(then=handler_named(app, "rec").args(n=2)).enqueue(n=1),
    ],
}


@pytest.mark.parametrize("how", CALLS)
def test_each_way_of_enqueueing_spools_what_it_cannot_send(away: PollConsumer, spool: Spool, how: str) -> None:
    handles = CALLS[how](away)
    assert [handle.duplicate for handle in handles] == [None] * len(handles)
    found = spooled(spool)
    assert [message.id for message in found] == [handle.id for handle in handles]
    assert [json.loads(message.payload) for message in found] == [{"n": 1}, {"n": 2}][: len(found)]


def test_without_a_spool_the_store_is_unreachable_and_nothing_is_written(tmp_path: Path) -> None:
    app = PollConsumer(store=f"unix://{tmp_path}/s", patience=0.01)
    with pytest.raises(StoreUnreachable):
        app.enqueue("rec")
    assert [*tmp_path.iterdir()] == []


def test_a_chain_is_spooled_as_its_first_link(away: PollConsumer, spool: Spool) -> None:
    rec = handler_named(away, "rec")
    handle = away.chain(rec.args(n=1), rec.args(n=2)).enqueue()
    (first,) = spooled(spool)
    assert (handle.duplicate, handle.id) == (None, f"{first.id}+2")


def test_members_of_a_batch_are_not_spooled(away: PollConsumer, spool: Spool) -> None:
    with pytest.raises(StoreUnreachable), away.batch("b") as batch:
        batch.add(handler_named(away, "rec").args(n=1))
    with pytest.raises(StoreUnreachable):
        calls_of(away).enqueue_messages([handler_named(away, "rec").args(n=1).__message__()], spools=False)
    assert not spool.directory.exists()


def test_a_unique_key_is_refused_in_one_line(away: PollConsumer, spool: Spool) -> None:
    with pytest.raises(StoreUnreachable, match=r"No such file.*; not spooled: only the store knows.*unique key$"):
        handler_named(away, "rec").using(key="k").enqueue(n=1)
    assert not spool.directory.exists()


def answering(monkeypatch: pytest.MonkeyPatch, enqueue: Callable[..., Any]) -> None:
    """Have a store enqueue so."""
    monkeypatch.setattr(Producer, "enqueue", enqueue)
    monkeypatch.setattr(Producer, "enqueue_one", lambda self, message: enqueue(self, [message]))


def test_what_may_have_been_accepted_is_spooled_with_its_id(
    away: PollConsumer, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_self: Producer, messages: list[NewMessage]) -> None:
        raise OutcomeUnknown([message.id for message in messages])

    answering(monkeypatch, lost)
    handle = away.enqueue("rec", {"n": 1})
    assert ([message.id for message in spooled(spool)], handle.duplicate) == ([handle.id], None)


def test_what_is_accepted_and_not_replicated_is_not_spooled(
    away: PollConsumer, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(_self: Producer, messages: list[NewMessage]) -> None:
        raise NotReplicated([message.id for message in messages], "too few replicas")

    answering(monkeypatch, short)
    with pytest.raises(NotReplicated):
        away.enqueue("rec", {"n": 1})
    assert not spool.directory.exists()


def accept_the_first(_: Producer, messages: list[NewMessage]) -> None:
    error = StoreUnreachable("gone")
    error.accepted = [messages[0].id]
    raise error


def test_of_many_messages_those_are_spooled_that_were_not_accepted(
    away: PollConsumer, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, accept_the_first)
    handles = handler_named(away, "rec").using(priority=1).enqueue_many([{"n": n} for n in range(3)])
    assert [message.id for message in spooled(spool)] == [handle.id for handle in handles[1:]]


def test_an_error_of_the_spool_has_the_ids_of_all_that_was_accepted(
    away: PollConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, accept_the_first)
    monkeypatch.setattr("pollconsumer.runtime.spool.MOST_FILES", 1)
    with pytest.raises(StoreUnreachable, match="spool full") as caught:
        handler_named(away, "rec").using(priority=1).enqueue_many([{"n": n} for n in range(77)])
    assert len(caught.value.accepted) == 76


def writable_by_others(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o707)


def without_room(directory: Path) -> None:
    """Have it named by a path that is too long."""
    config = directory.parent / "config.toml"
    config.write_text(config.read_text().replace('"spool"', f'"{"x" * 300}"'))


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "writable by others": (writable_by_others, "spool is writable by others"),
    "a file": (lambda directory: directory.write_text(""), "spool"),
    "without its parent": (lambda directory: directory.symlink_to("nowhere/spool"), "spool"),
    "impossible": (without_room, "cannot create"),
}


@pytest.mark.parametrize("spoiled", UNUSABLE)
@pytest.mark.parametrize("call", CALLS)
def test_a_spool_that_fails_does_not_hide_the_error_of_the_store(
    place: Path, spool: Spool, call: str, spoiled: str
) -> None:
    spoil, said = UNUSABLE[spoiled]
    spoil(spool.directory)
    app = PollConsumer(config=place, patience=0.01)
    app.handler("rec")(lambda n: n)
    with pytest.raises(StoreUnreachable, match=rf"No such file.*; not spooled: .*{said}"):
        CALLS[call](app)


@pytest.mark.parametrize("spoiled", UNUSABLE)
def test_an_unknown_outcome_keeps_its_ids_where_the_spool_fails(
    away: PollConsumer, spool: Spool, monkeypatch: pytest.MonkeyPatch, spoiled: str
) -> None:
    def lost(_self: Producer, messages: list[NewMessage]) -> None:
        raise OutcomeUnknown([message.id for message in messages])

    answering(monkeypatch, lost)
    spoil, said = UNUSABLE[spoiled]
    spoil(spool.directory)
    many = [handler_named(away, "rec").args(n=1).using(id=f"id{n}") for n in range(3)]
    with pytest.raises(OutcomeUnknown, match=f"; not spooled: .*{said}") as caught:
        handler_named(away, "rec").enqueue_many(many)
    assert (caught.value.ids, caught.value.accepted) == (["id0", "id1", "id2"], [])


@pytest.mark.parametrize("spoiled", UNUSABLE)
def test_a_site_answers_that_the_store_is_away_where_the_spool_fails(place: Path, spool: Spool, spoiled: str) -> None:
    UNUSABLE[spoiled][0](spool.directory)
    with place.open("a") as config:
        config.write(f'[web]\nenqueue_token = "{ENQUEUE_TOKEN}"\n')
    app = PollConsumer(config=place, patience=0.01)
    app.handler("rec")(lambda n: n)
    answered = LaunchEndpoint(app).answer(posted({"handler": "rec", "payload": {"n": 1}}))
    assert answered.status == 503


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("spoiled", UNUSABLE)
@pytest.mark.parametrize("many", [False, True])
def test_the_command_line_says_both(
    run: Callable[..., tuple[int, str, str]],
    place: Path,
    spool: Spool,
    monkeypatch: pytest.MonkeyPatch,
    *,
    unknown: bool,
    spoiled: str,
    many: bool,
) -> None:
    def refuse(*_: object) -> Iterator[None]:
        yield from ()
        raise OutcomeUnknown(["id"] * 3) if unknown else StoreUnreachable("gone")

    monkeypatch.setattr(Producer, "enqueue_pages", refuse)
    spoil, said = UNUSABLE[spoiled]
    spoil(spool.directory)
    (place.parent / "lines").write_text('{"handler":"rec","queue":"q"}\n' * 3)
    given = ["--ndjson", str(place.parent / "lines")] if many else ["rec", "--queue", "q"]
    code, _, errors = run("--config", str(place), "enqueue", *given)
    assert (code, errors.count("\n")) == (69, 1)
    assert re.search(f"(gone|outcome unknown).*; not spooled: .*{said}", errors)


def test_a_handle_waits_while_the_store_is_away(away: PollConsumer) -> None:
    handle = handler_named(away, "rec").enqueue(n=1)
    with pytest.raises(TimeoutError, match=f"message {handle.id} has not ended after .*; it is spooled"):
        handle.wait(0.05)
    with pytest.raises(TimeoutError, match=f"message {handle.id} has not ended after .*; it is spooled"):
        asyncio.run(handle.wait_async(0.05))


def unreachable(*_: object) -> None:
    raise StoreUnreachable("gone")


@pytest.mark.parametrize("in_task", [False, True])
def test_a_handle_waits_until_the_message_is_taken_in_and_has_ended(
    place: Path, spool: Spool, valkey: Server, monkeypatch: pytest.MonkeyPatch, in_task: bool
) -> None:
    app = PollConsumer(config=place, store=valkey.url)
    with monkeypatch.context() as away:
        answering(away, unreachable)
        handle = app.enqueue("rec", {"n": 1})
    acts: Iterator[Callable[[], object]] = iter(
        [
            lambda: Intake(spool, Producer(valkey.wire(), "tests"), lambda _: None).look(),
            lambda: app.message(handle.id).cancel(),
        ]
    )

    def pause(_seconds: float) -> None:
        next(acts)()

    async def pause_async(_seconds: float) -> None:
        next(acts)()

    monkeypatch.setattr(calls_of(app), "pause", pause)
    monkeypatch.setattr(calls_of(app), "pause_async", pause_async)
    with pytest.raises(NotCompleted, match="is cancelled"):
        asyncio.run(handle.wait_async()) if in_task else handle.wait()


def test_a_message_that_was_seen_and_is_no_longer_kept_is_not_awaited_for_ever(
    place: Path, valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = PollConsumer(config=place, store=valkey.url)
    with monkeypatch.context() as away:
        answering(away, unreachable)
        handle = app.enqueue("rec", {"n": 1})
    app.enqueue("rec", {"n": 1}, id=handle.id)
    monkeypatch.setattr(calls_of(app), "pause", lambda _: valkey.wire().command("FLUSHALL"))
    with pytest.raises(NotFound):
        handle.wait("1m")


@pytest.mark.parametrize("many", [False, True])
def test_the_command_line_prints_the_ids_and_one_notice(
    run: Callable[..., tuple[int, str, str]],
    place: Path,
    spool: Spool,
    monkeypatch: pytest.MonkeyPatch,
    many: bool,
) -> None:
    monkeypatch.setattr("pollconsumer.interface.cli.opened.COMMAND_BUDGET", 0.01)
    monkeypatch.setattr("pollconsumer.interface.cli.messages.enqueue.BULK", 2)
    command = partial(run, "--config", str(place), "enqueue", "--json")
    lines = place.with_name("lines")
    lines.write_text(
        "".join(f'{{"handler":"rec","queue":"default","payload":{{"n":{n}}}}}\n' for n in range(5 if many else 1))
    )
    code, output, notice = command("--ndjson", str(lines)) if many else command("rec", "--queue", "default", '{"n": 0}')
    shown = [json.loads(line) for line in output.splitlines()]
    assert (code, [each["duplicate"] for each in shown]) == (0, [None] * len(shown))
    assert [each["id"] for each in shown] == [message.id for message in spooled(spool)]
    assert notice.count("\n") == 1
    assert f"spooled in {spool.directory}: a launch will enqueue it" in notice


def test_the_command_line_ends_with_69_where_the_spool_is_full(
    run: Callable[..., tuple[int, str, str]], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.interface.cli.opened.COMMAND_BUDGET", 0.01)
    monkeypatch.setattr("pollconsumer.runtime.spool.MOST_FILES", 1)
    lines = place.with_name("lines")
    lines.write_text('{"handler":"rec"}\n' * 80)
    code, output, errors = run("--config", str(place), "enqueue", "--ndjson", str(lines))
    assert (code, output.count("\n")) == (69, 75)
    assert "spool full: 1 files" in errors
    assert "75 accepted before that: go on with --skip 75" in errors
