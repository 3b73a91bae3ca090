"""Messages looked up, and acted on, by asyncio programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import BadData, NotFound, PollConsumer
from pollconsumer.interface.api import batches
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.batch_reader import PER_CHUNK
from tests.conftest import NAMESPACE
from tests.interface.test_async_producers import run
from tests.store.acting import Launch, die

if TYPE_CHECKING:
    from pollconsumer.store.actions import CancelledMembers
    from tests.store.servers import Server


@pytest.fixture
def app(valkey: Server) -> PollConsumer:
    return PollConsumer(store=valkey.url, namespace=NAMESPACE)


def test_each_act_on_a_message_has_an_asynchronous_form(app: PollConsumer) -> None:
    async def act() -> list[str]:
        await app.enqueue_async("x", id="a", queue="default")
        handle = await app.message_async("a")
        states: list[str] = [await handle.state_async()]
        await handle.reschedule_async(in_="1h")
        states.append((await handle.status_async()).state)
        await handle.cancel_async()
        states.append(await handle.state_async())
        with pytest.raises(BadData, match="it is cancelled, no dead letter"):
            await handle.redrive_async()
        with pytest.raises(BadData, match="cancelled already"):
            await handle.reschedule_async(in_=1)
        with pytest.raises(TypeError):
            await handle.reschedule_async()
        with pytest.raises(NotFound):
            await app.message_async("b")
        return states

    assert run(act()) == ["ready", "scheduled", "cancelled"]


def test_a_dead_letter_is_redriven_asynchronously(app: PollConsumer, valkey: Server) -> None:
    handle = app.enqueue("x", id="a", queue="default")
    launch = Launch(RedisStore(valkey.wire(), NAMESPACE), queue="default")
    launch.settle(die(launch.reserve()[0]))
    run(handle.redrive_async())
    assert (handle.state, handle.status().generation) == ("ready", 1)


def test_the_members_of_a_batch_are_cancelled_and_redriven_asynchronously(app: PollConsumer, valkey: Server) -> None:
    @app.handler("x")
    def x(number: int) -> None: ...

    with app.batch("b") as batch:
        for number in range(PER_CHUNK + 2):
            batch.add(x.args(number))
    launch = Launch(RedisStore(valkey.wire(), NAMESPACE), queue="default")
    launch.settle(die(launch.reserve()[0]))
    outbox.send(launch.store, "default", lambda *_: None)

    async def act() -> tuple[CancelledMembers, int, int]:
        handle = await app.batches.get_async("b")
        return await handle.cancel_async(), await handle.redrive_async(), await handle.redrive_async()

    assert run(act()) == ((PER_CHUNK + 1, 0), 1, 0)
    assert app.message("b.0").state == "ready"


def test_messages_are_gone_through_asynchronously_several_at_a_time(
    app: PollConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "AT_ONCE", 3)
    expected = [app.enqueue("x", id=f"m{n}", queue="default").id for n in range(7)]

    async def ids(**which: Any) -> list[str]:
        return [message.id async for message in app.messages(**which)]

    assert run(ids(state="ready")) == expected
    assert run(ids(state="dead")) == []
