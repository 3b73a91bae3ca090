"""Handlers of members, links and callbacks in a simulation: what they do, and what of it is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.retry import Fatal, RetryIn
from pollconsumer.runtime.new_messages import new_message
from tests.faults.history import Batch
from tests.faults.recording import digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.runtime.handling.context import Context
    from pollconsumer.store.records.reservations import Reservation
    from tests.faults.history import History
    from tests.simulation.hosts.process import Process


class Sent(NamedTuple):
    """What ``handler.args(…)`` is to a program. ``until``: redrives until a member is completed; ``grows``: members
    that it adds."""

    handler: str
    queue: str
    seconds: float = 0.0
    fails: int = 0
    until: int = 0
    grows: int = 0
    options: Mapping[str, Any] = {}

    @property
    def payload(self) -> dict[str, Any]:
        given: dict[str, Any] = self._asdict()
        return {name: given[name] for name in ("queue", "seconds", "fails", "until", "grows")}

    def __message__(self) -> NewMessage:
        return new_message(self.handler, self.payload, **{"queue": self.queue, **self.options})

    def follow_up(self, message_id: str) -> dict[str, str]:
        return {"id": message_id, "queue": self.queue, "handler": self.handler, "digest": digest(self.payload)}


class PutOff(RetryIn):
    def __init__(self) -> None:
        super().__init__("10ms", charged=False)


def behave(process: Process, call: Context | Reservation, payload: dict[str, Any]) -> dict[str, Any]:
    process.sleep(payload["seconds"])
    if process.world.now < payload.get("not_before", 0.0):
        raise PutOff
    if call.attempt <= payload["fails"]:
        raise ValueError("no luck")
    return {}


def end_member(process: Process, context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """A member, or a message with callbacks."""
    behave(process, context, payload)
    if context.generation < payload["until"]:
        raise Fatal("until it is redriven")
    added = Sent("member", payload["queue"])
    if context.batch is None:
        return {"result": 1}
    follow_ups = tuple(added.follow_up(context.batch.add(added)) for _ in range(payload["grows"]))
    return {"result": 1, "follow_ups": follow_ups}


def go_on(process: Process, context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """A link, which counts on from the one before."""
    end_member(process, context, payload)
    before = context.previous.result if context.previous else 0
    return {"result": before + 1, "given": {"links": str(before)}}


def look_back(process: Process, context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """A callback. One that is called once all are completed finds the same in each attempt."""
    behave(process, context, payload)
    batch = context.batch
    if batch is None:
        assert context.previous is not None
        return {"given": {"previous": f"{context.previous.id} {context.previous.state}"}}
    if not context.id.endswith(":then"):
        return {}
    found = sum(each.result is not None for each in batch.results())
    return {"given": {"then": f"{batch.completed} of {batch.total}, {found} results"}}


def start_batch(history: History, process: Process, context: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Starts a batch whose id no other execution gives, of ``grows`` members, in the queue of its callbacks."""
    queue = payload["queue"]
    name, callback = f"{context.id}-{context.generation}-{context.attempt}-{context.fence}", Sent("callback", queue)
    batch = context.start_batch(name, then=callback, ended=callback)
    callbacks = dict.fromkeys(("then", "ended"), queue)
    history.batches.append(Batch(name, queue, callbacks, payload["grows"], "started"))
    member = Sent("member", queue)
    follow_ups = tuple(member.follow_up(batch.add(member)) for _ in range(payload["grows"]))
    try:
        behave(process, context, payload)
    except Exception as error:
        error.more = {"follow_ups": follow_ups}  # type: ignore[attr-defined]  # for `_execute`
        raise
    return {"follow_ups": follow_ups}
