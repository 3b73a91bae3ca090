"""Bulk handlers in a simulation: what a call says of each of its messages, and what of it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pollconsumer.core.retry import Fatal, Partial
from pollconsumer.interface.api.conversion import converting
from pollconsumer.runtime.handling.bulk import MESSAGES, BulkArguments, Item, calling_bulk
from pollconsumer.runtime.handling.handler import Bulk, Handler
from tests.faults.history import Execution
from tests.faults.recording import digest
from tests.simulation.batch_handlers import PutOff

if TYPE_CHECKING:
    from pollconsumer.runtime.handling.context import LaunchContext
    from pollconsumer.runtime.handling.handler import CallOutcomes
    from tests.simulation.hosts.process import Process
    from tests.simulation.hosts.world import Actor
    from tests.simulation.installation import Installation

MOST, WAIT = 6, 0.5
"""Messages of a call; seconds for which it waits for more."""
SHORTEST = 0.00002
"""Seconds that a call takes at least."""
HOPELESS = 9
"""Failures of a message that no attempt can help."""


def bulk_handler(installation: Installation, process: Process, name: str, **options: Any) -> Handler:
    """One whose calls return a result for each message, raise `Partial` for those that fail, or fail as a whole where
    all do."""
    executions, world = installation.history.executions, process.world
    began: dict[Actor | None, int] = {}
    """By the actor of a call, where its first execution is recorded."""

    def end_each(messages: list[Item]) -> list[str]:
        at = began.pop(world.running)
        process.sleep(SHORTEST + max(each.payload["seconds"] for each in messages))
        failures = [_failure(each, world.now) for each in messages]
        errors = {place: each for place, each in enumerate(failures) if each is not None}
        failure: Exception = Partial(errors)
        if len(errors) == len(messages):
            failure = errors[0]
            errors = dict.fromkeys(errors, failure)
        results = [f"{each.id}, attempt {each.attempt}" for each in messages]
        for place, result in enumerate(results):
            outcome, said = "ok", None if errors else result
            if place in errors:
                outcome, said = type(errors[place]).__name__, str(errors[place])
            ended = executions[at + place]._replace(ended=installation.now_us(), outcome=outcome, said=said)
            executions[at + place] = ended
            world.tell(f"{process.name}: ends {ended.id}: {outcome}")
        if errors:
            raise failure
        return results

    call = calling_bulk(end_each, BulkArguments(end_each, converting), asynchronous=False)

    def run(payload: dict[str, Any], context: LaunchContext | None) -> CallOutcomes:
        messages, running = payload[MESSAGES], world.running
        began[running] = len(executions)
        executions.extend(
            Execution(
                each.id,
                each.handler,
                each.queue,
                each.attempt,
                each.generation,
                each.fence,
                id(running) if running in process.children else id(process),
                digest(content),
                installation.now_us(),
                together=len(messages),
            )
            for each, content in messages
        )
        world.tell(f"{process.name}: begins {', '.join(each.id for each, _ in messages)}")
        outcomes: CallOutcomes = call(payload, context)
        return outcomes

    return Handler(name, run, bulk=Bulk(MOST, WAIT), **options)


def _failure(message: Item, now: float) -> Exception | None:
    if now < message.payload.get("not_before", 0.0):
        return PutOff()
    if message.attempt > message.payload["fails"]:
        return None
    kind = Fatal if message.payload["fails"] == HOPELESS else ValueError
    return kind(f"no luck with {message.id}")
