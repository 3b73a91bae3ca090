"""Each act of a producer or a person, with each of its requests and each of its replies lost, after the server has hung
up, and after it was started again: the answer, and what is in the store afterwards, are those of an act that nothing
has disturbed.

A new act is one more line of `ACTS`.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.notation.instants import EPOCH
from pollconsumer.interface.api.handle import Handle
from pollconsumer.store.actions import HandlerPauses, MessageActions
from pollconsumer.store.audit_log import acting_as
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.batch_reader import BatchReader
from pollconsumer.store.reading.messages import read_messages
from pollconsumer.store.records.rows import id_text
from pollconsumer.store.recurrences import RecurrenceReader
from pollconsumer.store.server import known_queues
from pollconsumer.store.store import Store
from pollconsumer.web import LaunchEndpoint
from tests.conftest import NAMESPACE, own_environment
from tests.inner import calls_of
from tests.store.acting import Launch, die
from tests.store.relay import Dropping
from tests.web.conftest import CONFIG, posted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from pollconsumer.interface.api.batches import OpenBatch
    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server

QUEUE = "acts"
SIZE = {"list": "LLEN", "hash": "HLEN", "zset": "ZCARD", "set": "SCARD", "string": "EXISTS"}
GENERATED = re.compile(r"[0-9a-f]{28}")
INSTANT = re.compile(r"\d{10,}(\.\d+)?|\d{4}-\d\d-\d\dT[\d:.]+Z")


class Acting:
    """An application whose connections can be disturbed, with the handler of all its messages."""

    def __init__(self, url: str, config: Path) -> None:
        self.app = PollConsumer(config=config, store=url, namespace=NAMESPACE)

        @self.app.handler("work", queue=QUEUE)
        def work(n: int = 0) -> int:
            return n

        self.work = work

    def people(self, act: Callable[[MessageActions], object]) -> object:
        return calls_of(self.app).ask(lambda store: act(store.actions))

    def pauses(self, act: Callable[[HandlerPauses], object]) -> object:
        return calls_of(self.app).ask(lambda store: act(store.handler_pauses))

    def batch(self, name: str, members: int = 3, **options: Any) -> tuple[str, bool]:
        with self.app.batch(name, then=self.work.args(9), **options) as batch:
            self.fill(batch, members)
        return batch.id, batch.duplicate

    def fill(self, batch: OpenBatch, members: int) -> None:
        for n in range(members):
            batch.add(self.work.args(n))

    async def batch_async(self, name: str) -> tuple[str, bool]:
        async with self.app.batch(name, then=self.work.args(9)) as batch:
            for n in range(3):
                await batch.add_async(self.work.args(n))
        return batch.id, batch.duplicate

    def mixed_batch(self, name: str) -> tuple[str, bool]:
        """Members that go the general way."""
        with self.app.batch(name, then=self.work.args(9)) as batch:
            for n in range(3):
                batch.add(self.work.args(n).using(in_="1h", priority=n))
        return batch.id, batch.duplicate

    def post(self, **message: Any) -> object:
        answer = LaunchEndpoint(self.app).answer(posted({"handler": "work", "queue": QUEUE, **message}))
        return answer.status, json.loads(answer.body)

    def break_lease(self) -> bool:
        def breaking(store: Store) -> bool:
            lease_name = f"consumer:{QUEUE}:0"
            (fence,) = store.wire.all([("HGET", store.keys.control(f"lease:{lease_name}"), "fence")])
            return store.leases.break_(lease_name, fence.decode())

        return calls_of(self.app).ask(breaking)


def soon(awaitable: Awaitable[Any]) -> Any:
    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())


ACTS: dict[str, Callable[[Acting], object]] = {
    "enqueue": lambda a: a.work.enqueue(1),
    "enqueue by name": lambda a: a.app.enqueue("work", {"n": 1}, queue=QUEUE),
    "enqueue, async": lambda a: soon(a.work.enqueue_async(1)),
    "enqueue later": lambda a: a.work.using(in_="1h").enqueue(1),
    "enqueue, with callbacks": lambda a: a.work.using(then=a.work.args(2), failed=a.work.args(3)).enqueue(1),
    "enqueue, to expire": lambda a: a.work.using(expires="1h").enqueue(1),
    "enqueue, with a priority": lambda a: a.work.using(priority=3).enqueue(1),
    "enqueue, with an id": lambda a: a.work.using(id="new").enqueue(1),
    "enqueue, with an id, async": lambda a: soon(a.work.using(id="new").enqueue_async(1)),
    "enqueue what is ready": lambda a: a.work.using(id="ready").enqueue(1),
    "enqueue what is ready, async": lambda a: soon(a.work.using(id="ready").enqueue_async(1)),
    "enqueue what is completed": lambda a: a.work.using(id="done").enqueue(1),
    "enqueue another of its id": lambda a: a.work.using(id="ready").enqueue(7),
    "enqueue, with a key": lambda a: a.work.using(key="free").enqueue(1),
    "enqueue, with a key that is held": lambda a: a.work.using(key="held").enqueue(1),
    "enqueue what holds the key": lambda a: a.work.using(key="held", id="keyed").enqueue(1),
    "replace": lambda a: a.work.using(key="held", replace=True).enqueue(5),
    "replace, with an id": lambda a: a.work.using(key="held", replace=True, id="new", in_="2h", at_most="3h").enqueue(
        5
    ),
    "replace by itself": lambda a: a.work.using(key="held", replace=True, id="keyed").enqueue(1),
    "replace nothing": lambda a: a.work.using(key="free", replace=True).enqueue(5),
    "enqueue many": lambda a: a.work.enqueue_many([{"n": n} for n in range(3)]),
    "enqueue many pages": lambda a: a.work.enqueue_many([{"n": n} for n in range(310)]),
    "enqueue many, async": lambda a: soon(a.work.enqueue_many_async([{"n": n} for n in range(3)])),
    "enqueue many, with ids": lambda a: a.work.enqueue_many(
        [a.work.args(1).using(id=each) for each in ("x", "ready", "y", "done")]
    ),
    "enqueue many, one of them another": lambda a: a.work.enqueue_many(
        [a.work.args(7).using(id=each) for each in ("x", "y", "ready", "z")]
    ),
    "chain": lambda a: a.app.chain(a.work.args(1), a.work.args(2)).enqueue(),
    "chain, with an id": lambda a: a.app.chain(a.work.args(1).using(id="new"), a.work.args(2)).enqueue(),
    "chain of the same id": lambda a: a.app.chain(a.work.args(1).using(id="ready"), a.work.args(2)).enqueue(),
    "batch": lambda a: a.batch("new"),
    "batch, async": lambda a: soon(a.batch_async("new")),
    "batch of pages": lambda a: a.batch("new", 310),
    "batch of messages that differ": lambda a: a.mixed_batch("new"),
    "batch without members": lambda a: a.batch("new", 0),
    "batch whose member is another's message": lambda a: a.batch("taken"),
    "batch whose member is another's, async": lambda a: soon(a.batch_async("taken")),
    "batch of different ones, a member another's": lambda a: a.mixed_batch("taken"),
    "batch that is open": lambda a: a.batch("open"),
    "batch that is closed": lambda a: a.batch("closed"),
    "cancel": lambda a: a.app.message("ready").cancel(),
    "cancel, async": lambda a: soon(a.app.message("later").cancel_async()),
    "cancel what is in hand": lambda a: a.app.message("reserved").cancel(),
    "cancel what is cancelled": lambda a: a.app.message("cancelled").cancel(),
    "cancel nothing": lambda a: a.people(lambda them: them.cancel(QUEUE, "none")),
    "cancel all": lambda a: a.app.messages(handler="work").cancel_all(),
    "stop": lambda a: a.app.message("ready").stop(),
    "stop what is in hand": lambda a: a.app.message("reserved").stop(),
    "stop what is cancelled": lambda a: a.app.message("cancelled").stop(),
    "stop what is completed": lambda a: a.app.message("done").stop(),
    "reschedule": lambda a: a.app.message("later").reschedule(in_="2h"),
    "change": lambda a: a.app.message("ready").change(priority=3, payload={"n": 8}),
    "change what is completed": lambda a: a.app.message("done").change(priority=3),
    "redrive": lambda a: a.app.message("dead").redrive(),
    "redrive from the start": lambda a: a.app.message("dead").redrive(from_start=True),
    "redrive what is not dead": lambda a: a.app.message("ready").redrive(),
    "rerun": lambda a: a.app.message("done").rerun(),
    "rerun what is not kept": lambda a: a.app.message("none").rerun(),
    "redrive all": lambda a: a.app.messages(state="dead").redrive_all(),
    "purge": lambda a: a.people(lambda them: them.purge(QUEUE, ["dead", "buried", "ready"])),
    "signal": lambda a: a.app.message("ready").signal("approved", {"by": "a"}),
    "signal again": lambda a: [a.app.message("ready").signal("approved", n) for n in range(2)],
    "signal what has ended": lambda a: a.app.message("done").signal("approved", 1),
    "cancel a batch": lambda a: a.app.batches.get("closed").cancel(),
    "redrive a batch": lambda a: a.app.batches.get("closed").redrive(),
    "put": lambda a: a.app.recurrences.put("new", every="1h", handler="work", queue=QUEUE),
    "put, as it is": lambda a: a.app.recurrences.put("hourly", every="1h", handler="work", queue=QUEUE),
    "put, otherwise": lambda a: a.app.recurrences.put("hourly", every="2h", handler="work", queue=QUEUE),
    "put elsewhere": lambda a: a.app.recurrences.put("hourly", every="1h", handler="work", queue="other"),
    "put many": lambda a: a.app.recurrences.put_many(
        [{"name": f"r{n}", "every": "1h", "handler": "work", "queue": QUEUE} for n in range(3)]
    ),
    "remove": lambda a: a.app.recurrences.remove("hourly"),
    "remove none": lambda a: a.app.recurrences.remove("none"),
    "pause a recurrence": lambda a: a.app.recurrences.pause("hourly"),
    "resume a recurrence": lambda a: a.app.recurrences.resume("paused"),
    "trigger": lambda a: a.app.recurrences.trigger("hourly"),
    "pause": lambda a: a.people(lambda them: them.pause(QUEUE, paused=True)),
    "pause for a time": lambda a: a.people(lambda them: them.pause(QUEUE, paused=True, lasts_ms=3_600_000)),
    "resume": lambda a: a.people(lambda them: them.pause("other", paused=False)),
    "resume an unknown queue": lambda a: a.people(lambda them: them.pause("none", paused=False)),
    "pause a handler": lambda a: a.pauses(lambda them: them.pause("work")),
    "resume a handler": lambda a: a.pauses(lambda them: them.resume("rest")),
    "break a lease": lambda a: a.break_lease(),
    "post": lambda a: a.post(payload={"n": 1}),
    "post, with an id": lambda a: a.post(payload={"n": 1}, id="new"),
    "post what is ready": lambda a: a.post(payload={"n": 1}, id="ready"),
    "post another of its id": lambda a: a.post(payload={"n": 7}, id="ready"),
}


def prepare(a: Acting, store: RedisStore) -> None:
    """Everything that there are acts for."""
    launch = Launch(store, queue=QUEUE)

    def taken(name: str) -> Any:
        a.work.using(id=name).enqueue(1)
        return launch.reserve()[0]

    launch.complete(taken("done"))
    launch.settle(die(taken("dead")), die(taken("buried")))
    a.work.using(id="cancelled").enqueue(1)
    a.app.message("cancelled").cancel()
    a.work.using(id="reserved").enqueue(1)
    launch.reserve()
    a.work.using(id="ready").enqueue(1)
    a.work.using(id="later", in_="1h").enqueue(1)
    a.work.using(id="keyed", key="held", in_="1h").enqueue(1)
    a.work.using(id="taken.1").enqueue(1)
    with suppress(ZeroDivisionError), a.app.batch("open", then=a.work.args(9)) as batch:
        a.fill(batch, 2)
        batch._flush()  # noqa: SLF001  as if the page were full
        raise ZeroDivisionError
    a.batch("closed", 3)
    for each in ("hourly", "paused"):
        a.app.recurrences.put(each, every="1h", handler="work", queue=QUEUE)
    a.app.recurrences.pause("paused")
    a.people(lambda them: them.pause("other", paused=True))
    a.pauses(lambda them: them.pause("rest"))
    group = Group("consumer", (QUEUE,), 1)
    Leases(store.wire, NAMESPACE).acquire(group, "one", "{}", "{}")


def told(answer: object) -> object:
    """An answer that can be compared."""
    if isinstance(answer, Handle):
        return answer.queue, answer.id, answer.duplicate
    if isinstance(answer, list):
        return [told(each) for each in answer]
    return answer


def normal(text: str) -> str:
    """``text`` with numbers in place of generated ids, by their order, and without instants."""
    ids = {each: f"<{n}>" for n, each in enumerate(sorted(set(GENERATED.findall(text))))}
    return INSTANT.sub("…", GENERATED.sub(lambda found: ids[found[0]], text))


def seen(wire: Wire) -> Iterator[object]:
    """What is in the store, but for instants, and answers that are kept for repetitions."""
    store = RedisStore(wire, NAMESPACE)
    for queue in known_queues(wire, store.keys):
        keys = [store.keys.queue(queue, word) for word in ("records", "rows")]
        ids = sorted({each for key in keys for each in wire.command("HKEYS", key)})
        for each in read_messages(wire, store.keys, queue, ids):
            instants = [instant is not None for instant in each.row.timestamps]
            yield each._replace(row=each.row._replace(timestamps=None), stop_asked_at=None, expires_at=None), instants  # type: ignore[arg-type]
    for batch in BatchReader(wire, NAMESPACE).batches():
        yield batch._replace(created_at=EPOCH, ended_at=batch.ended_at and EPOCH)
    for recurrence in RecurrenceReader(wire, NAMESPACE).statuses(lambda _: None):
        yield id_text(wire.command("HGET", store.keys.queue(recurrence.queue, "recurrences"), recurrence.raw_name))
    keys = [key for key in sorted(wire.command("KEYS", "*")) if not re.search(rb"}:(act|last_answer):", key)]
    kinds = [kind.decode() for kind in wire.all([("TYPE", key) for key in keys])]
    sizes = wire.all([(SIZE[kind], key) for key, kind in zip(keys, kinds, strict=True)])
    yield from zip(map(str, keys), kinds, sizes, strict=True)


def difference(outcome: str, undisturbed: str) -> str:
    lines = undisturbed.split("\n")
    return "\n  ".join(each for each in outcome.split("\n") if each not in lines)


class Stage:
    """A server, and what stands on it when an act begins."""

    def __init__(self, url: str, wire: Wire, config: Path) -> None:
        self.wire, self.config = wire, config
        self.acting = Acting(url, config)
        prepare(self.acting, RedisStore(wire, NAMESPACE))
        keys = wire.command("KEYS", "*")
        self._dumped = [(key, wire.command("DUMP", key)) for key in keys]
        self.between = Dropping(url)

    def set(self) -> Acting:
        """An application with an idle connection."""
        self.between.hang_up()
        calls_of(self.acting.app)._begin_anew()  # noqa: SLF001  its connections would be open until the end of the process
        self.wire.all([("FLUSHALL",), *(("RESTORE", key, 0, value) for key, value in self._dumped)])
        self.acting = acting = Acting(self.between.url, self.config)
        self.between.drop(0, "")
        acting.app.message("ready")
        return acting

    def outcome(self, acting: Acting, act: Callable[[Acting], object]) -> str:
        """The answer to ``act``, and what it has left."""
        with acting_as("test"):
            try:
                answer = told(act(acting))
            except PollConsumerError as error:
                answer = repr(error)
        return normal("\n".join(map(repr, [answer, *seen(self.wire)])))


@pytest.fixture(scope="module")
def stage(valkey_process: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    config = tmp_path_factory.mktemp("acts") / "config.toml"
    config.write_text(CONFIG)
    wire = valkey_process.wire()
    wire.command("FLUSHALL")
    with own_environment(config.parent / "home"):  # no test's has been set up
        stage = Stage(valkey_process.url, wire, config)
    yield stage
    stage.between.close()
    valkey_process.clear()


@pytest.mark.matrix
@pytest.mark.parametrize("name", ACTS)
def test_an_act_is_answered_as_if_no_request_and_no_reply_had_been_lost(stage: Stage, name: str) -> None:
    act, untrue = ACTS[name], list[str]()
    undisturbed = stage.outcome(stage.set(), act)
    exchanges = stage.between.exchanges - 1
    assert exchanges
    for number in range(1, exchanges + 1):
        for what in ("request", "reply"):
            acting = stage.set()
            stage.between.drop(number, what)
            if (outcome := stage.outcome(acting, act)) != undisturbed:
                untrue.append(f"{what} {number}: {difference(outcome, undisturbed)}")
    acting = stage.set()
    stage.wire.command("SCRIPT", "FLUSH")  # as of a server that was started again
    stage.wire.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    if (outcome := stage.outcome(acting, act)) != undisturbed:
        untrue.append(f"idle: {difference(outcome, undisturbed)}")
    assert not untrue, "\n".join(map(str, [undisturbed.partition("\n")[0], *untrue]))
