"""Producers of batches, of chains, and of messages with callbacks, who may die at any moment; and people who cancel and
redrive members."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pollconsumer.core.errors import NotFound, OutcomeUnknown, StoreUnreachable, UsageError
from pollconsumer.interface.api.batches import Chain, OpenBatch
from pollconsumer.interface.api.handle import Handle
from pollconsumer.runtime.handling.handler_batches import inner_id, new_batch
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.batch_reader import BatchReader
from pollconsumer.store.store import Store
from tests.faults.history import Batch, Followed, Operation
from tests.faults.recording import digest
from tests.forecast.distributions import Distribution, draw
from tests.simulation.batch_handlers import Sent
from tests.simulation.hosts.process import Process
from tests.simulation.installation import NAMESPACE, Opener
from tests.simulation.recorder import TRIES, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.interface.api.store_calls import AppCalls
    from tests.simulation.installation import Installation

MOST_MEMBERS, MOST_INNER, MOST_LINKS, VISITS = 6, 3, 3, 3
"""Of a batch; of one within it; of a chain; acts of the person who looks after one."""
PACE = 0.05
"""Seconds between two members, at most."""
DIES, BEGINS_AGAIN = 0.5, 0.5
"""Share of the producers that die, and of these that begin again."""
LONGEST_BREAK = 30.0
PAGE = 2
"""Members that a producer sends at once."""


class SimulatedCalls:
    """What batches and chains ask of their application."""

    codec = None

    def __init__(self, installation: Installation, process: Process) -> None:
        self.wire = Opener(installation.server, process).wire()
        self._store = RedisStore(self.wire, NAMESPACE, clocks=process)

    def ask(self, question: Callable[[Store], Any]) -> Any:
        return question(Store(self.wire, NAMESPACE))

    def enqueue_messages(self, messages: Sequence[NewMessage], *, spools: bool = False) -> list[Handle[Any]]:  # noqa: ARG002  as `AppCalls`
        enqueued = self._store.enqueue(messages)
        return [
            Handle(message.id, message.queue, cast("AppCalls", self), duplicate=duplicate)
            for message, (_, duplicate) in zip(messages, enqueued, strict=True)
        ]

    def losses(self) -> int:
        """How often the store has lost what it had acknowledged: a simulated one keeps that."""
        return 0

    def enqueue_one(self, message: NewMessage) -> None:
        self._store.enqueue([message])


class Inner(NamedTuple):
    """A batch that is a member of another one, with the queues of its callbacks by their names."""

    id: str
    callbacks: Mapping[str, str]
    members: Sequence[Sent]

    def produce(self, process: Process, outer: OpenBatch, pace: float, note: Callable[[str, str], None]) -> None:
        called: Any = {name: Sent("callback", queue) for name, queue in self.callbacks.items()}
        with outer.add_batch(**called) as batch:
            for member in self.members:
                batch.add(member)
                process.sleep(pace)
            if not batch.duplicate:
                note("unknown", self.id)
        if not batch.duplicate:
            note("closed", self.id)


class BatchProducer:
    """Makes a batch, a chain, or a message with callbacks, ``name``, at an instant within ``seconds`` from now."""

    def __init__(
        self,
        installation: Installation,
        name: str,
        seconds: float,
        durations: Distribution,
        happens: Callable[[str], bool],
    ) -> None:
        """``happens``: whether an act does, by its name."""
        self.installation, self.name, self._durations, self._happens = installation, name, durations, happens
        self.chance, self._seconds, self.history = installation.world.stream(name), seconds, installation.history
        self.processes: list[Process] = []
        acts = [self._make_batch, self._make_chain, self._make_one, self._start_batch]
        act = self.chance.choices(acts, [6, 2, 1, 1])[0]
        if happens(name):
            self._start(name, self.chance.uniform(0.0, seconds), act())

    def _start(self, name: str, after: float, act: Callable[[Process], object]) -> Process:
        def run(process: Process) -> int:
            process.sleep(after)
            act(process)
            return 0

        self.processes.append(Process(self.chance.choice(self.installation.machines), name, run))
        return self.processes[-1]

    def _queue(self) -> str:
        return self.chance.choice(self.installation.queues)

    def _drawn(self, handler: str, **more: Any) -> Sent:
        """Of a message that is completed, fails, expires, or is dead until it is redriven."""
        chance, options = self.chance, dict[str, Any]()
        seconds = chance.choice([0.0, 0.001, min(draw(self._durations, chance), 20.0)])
        fails, until = chance.choice([0, 0, 0, 1, 9]), chance.choice([0, 0, 0, 0, 1])
        if chance.random() < 0.3:
            options["in_"] = chance.choice([0.05, 1.0, 30.0])
        if chance.random() < 0.1:
            options["expires"] = chance.choice([0.05, 1.0, 5.0])
        return Sent(handler, self._queue(), seconds, fails, until, options=options, **more)

    def _links(self, message_id: str, **of_first: Any) -> Chain:
        """A chain that has this id. What may follow its links is noted."""
        links = [self._drawn("link") for _ in range(self.chance.randint(2, MOST_LINKS))]
        failed = Sent("callback", self._queue())
        first, *others = links
        self.history.followed.append(
            Followed(message_id, tuple(each.queue for each in links), {"failed": failed.queue})
        )
        first = first._replace(options={**first.options, **of_first})
        # It asks nothing of its application before it is enqueued.
        return Chain(cast("AppCalls", None), [first, *others], failed)

    def _note(self, message: NewMessage) -> int:
        """What is to be enqueued, by the place of its operation."""
        self.history.operations.append(
            Operation(
                "enqueue",
                message.queue,
                message.id,
                self.installation.now_us(),
                handler=message.handler,
                digest=digest(json.loads(message.payload)),
                due=None if message.delay is None else self.installation.server.now_ms() + message.delay,
            )
        )
        return len(self.history.operations) - 1

    # Acts

    def _drawn_member(self, number: int) -> Sent | Chain | Inner:
        drawn = self.chance.random()
        if drawn < 0.2:
            return self._links(f"{self.name}.{number}")
        if drawn < 0.3:
            callbacks = {name: self._queue() for name in ("then", "failed", "ended") if self.chance.random() < 0.9}
            members = [self._drawn("member") for _ in range(self.chance.randint(0, MOST_INNER))]
            return Inner(inner_id(self.name, number), callbacks, members)
        return self._drawn("member", grows=self.chance.choice([0, 0, 0, 1, 2]))

    def _make_batch(self) -> Callable[[Process], None]:
        chance = self.chance
        members = [self._drawn_member(number) for number in range(chance.randint(0, MOST_MEMBERS))]
        callbacks = {name: self._queue() for name in ("then", "failed", "ended") if chance.random() < 0.9}
        called = {name: Sent("callback", queue) for name, queue in callbacks.items()}
        expires = chance.choice([None, None, None, 2.0, 20.0])
        batch = new_batch(self.name, called.get("then"), called.get("failed"), called.get("ended"), expires)
        paces = [chance.uniform(0.0, PACE) for _ in members]
        dies = chance.uniform(0.0, PACE * (len(members) + 1)) if chance.random() < DIES else None
        begins_again = chance.uniform(0.0, LONGEST_BREAK) if chance.random() < BEGINS_AGAIN else None
        visits = [chance.uniform(0.0, self._seconds / VISITS) for _ in range(VISITS)]
        noted = Batch(self.name, batch.queue, callbacks, len(members), expires=expires is not None)
        operations: dict[str, list[int]] = {}

        def note(fate: str, name: str = self.name) -> None:
            at = [each.id for each in self.history.batches].index(name)
            self.history.batches[at] = self.history.batches[at]._replace(fate=fate)
            self.installation.world.tell(f"{name}: the batch is {fate}")
            for operation in operations[name] if fate == "closed" else ():
                each = self.history.operations[operation]
                self.history.operations[operation] = each._replace(answered=self.installation.now_us(), outcome="ok")

        def produce(process: Process) -> None:
            calls: Any = SimulatedCalls(self.installation, process)
            for _ in range(TRIES):
                try:
                    with OpenBatch(calls, batch) as opened:
                        for pace, member in zip(paces, members, strict=True):
                            if isinstance(member, Inner):
                                member.produce(process, opened, pace, note)
                            else:
                                opened.add(member)
                            process.sleep(pace)
                        note("unknown")
                    note("closed")
                except (OutcomeUnknown, StoreUnreachable):
                    process.sleep(1.0)
                except UsageError as error:  # it was abandoned, or has expired
                    self.installation.world.tell(f"{self.name}: {error}")
                    note("refused")
                    return
                else:
                    return

        def begin(process: Process) -> None:
            self.history.batches.append(noted)
            inner = [each for each in members if isinstance(each, Inner)]
            self.history.batches += [Batch(each.id, batch.queue, each.callbacks, len(each.members)) for each in inner]
            for name, its in ((self.name, members), *((each.id, each.members) for each in inner)):
                sent = {f"{name}.{number}": each for number, each in enumerate(its) if not isinstance(each, Inner)}
                messages = [each.__message__()._replace(id=message_id) for message_id, each in sent.items()]
                operations[name] = [self._note(message) for message in messages]
            for name in (self.name, *(each.id for each in inner)):
                self._start(f"who looks after {name}", 0.0, partial(self._look_after, visits, name))
            if dies is not None:
                self.installation.world.after(dies, process.end)
                if begins_again is not None:
                    self._start(f"{self.name}-again", dies + begins_again, produce)
            produce(process)

        return begin

    def _make_chain(self) -> Callable[[Process], None]:
        chain = self._links(self.name, id=self.name)
        return lambda process: self._enqueue(process, chain.__message__())

    def _make_one(self) -> Callable[[Process], None]:
        queues = {name: self._queue() for name in ("then", "failed")}
        self.history.followed.append(Followed(self.name, (), queues))
        drawn = self._drawn("member")
        called = {name: Sent("callback", queue) for name, queue in queues.items()}
        message = drawn._replace(options={**drawn.options, **called, "id": self.name}).__message__()
        return lambda process: self._enqueue(process, message)

    def _start_batch(self) -> Callable[[Process], None]:
        drawn = self._drawn("starts", grows=self.chance.randint(1, MOST_MEMBERS))
        message = drawn._replace(options={**drawn.options, "id": self.name}).__message__()
        return lambda process: self._enqueue(process, message)

    def _enqueue(self, process: Process, message: NewMessage) -> None:
        calls = SimulatedCalls(self.installation, process)
        recorder = Recorder(self.installation, self.name, calls.wire)
        due = None if message.delay is None else self.installation.server.now_ms() + message.delay
        more = {"handler": message.handler, "digest": digest(json.loads(message.payload)), "due": due}
        recorder.record("enqueue", message.queue, message.id, lambda: calls.enqueue_one(message), more)

    def _look_after(self, pauses: Sequence[float], name: str, process: Process) -> None:
        """After each pause, redrive the dead members of the batch ``name``, or cancel one that has not ended."""
        for number, pause in enumerate(pauses):
            process.sleep(pause)
            if self._happens(f"{name}-{number}"):
                self._visit(process, name)

    def _visit(self, process: Process, name: str) -> None:
        wire = Opener(self.installation.server, process).wire()
        recorder, reader = Recorder(self.installation, process.name, wire), BatchReader(wire, NAMESPACE)
        redrives, chosen = process.stream.random() < 0.75, process.stream.random()
        try:
            batch = reader.batch(name)
            found = [*reader.members(batch, "dead" if redrives else "unended")]
        except (NotFound, OutcomeUnknown, StoreUnreachable):
            return
        if redrives:
            for each in found:
                recorder.redrive(each.queue, each.id)
        elif found:
            each = found[int(chosen * len(found))]
            recorder.cancel(each.queue, each.id)
