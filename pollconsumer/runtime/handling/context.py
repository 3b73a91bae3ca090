"""The ``context: Context`` parameter of a handler: facts about its message, and actions on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast

from pollconsumer.core.errors import BadData, ChildFailed, UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.codec import Undecodable, coded, decoded_object, decoded_value, encoded_json, is_encoded
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.message_steps import Recorded, StepEntry, checked
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.notation.instants import datetime_of
from pollconsumer.core.spans import Span
from pollconsumer.runtime.handling.delivery import Delivery, Previous, Situation
from pollconsumer.runtime.handling.journal import Journal
from pollconsumer.runtime.handling.shield import Shield
from pollconsumer.runtime.new_messages import (
    Sendable,
    SendOptions,
    drafted,
    message_of,
    new_message,
    refuse_own_identity,
)

if TYPE_CHECKING:
    from pollconsumer.runtime.handling.handler_batches import Batch, BatchOptions, StartedBatch
    from pollconsumer.store.queues.batches import NewBatch

T = TypeVar("T")

MOST_ENQUEUED, MOST_BYTES = 1000, 16 * 1024**2
"""Limits of what one handler may enqueue with its completion: the script for it must not block the server for long."""


class Context:
    """The ``context`` that a handler may take: facts about the message in flight, and actions on it."""

    def __init__(
        self, delivery: Delivery, situation: Situation, message: object = None, *, settled: bool = False
    ) -> None:
        """``message``: what ``situation``'s functions are called with. ``settled``: the attempt is settled already."""
        self._delivery, self._message = delivery, message
        self._deadline: float = situation.ends_by(situation.clock())
        self._enqueued: list[NewMessage] = []
        self._started: list[Callable[[], NewBatch]] = []
        self._added = 0
        self._situation, self._codec = situation, situation.codec
        self._batch: Batch | None = None
        self._adding, self._ended, self._settled = Lock(), False, settled
        self._own_journal: Journal | None = None

    @property
    def id(self) -> str:
        """The message's id."""
        return self._delivery.id

    @property
    def queue(self) -> str:
        """The message's queue."""
        return self._delivery.queue

    @property
    def handler(self) -> str:
        """The name of the handler."""
        return self._delivery.handler

    @property
    def attempt(self) -> int:
        """The number of the current attempt, from 1."""
        return self._delivery.attempt

    @property
    def generation(self) -> int:
        """How often the message was redriven."""
        return self._delivery.generation

    @property
    def fence(self) -> int:
        """A number that rises with every launch of the same queues in the same slot of their lease. A database that
        stores the highest one can refuse writes with a lower one. Fences of other queues or slots are not
        comparable."""
        return self._delivery.fence

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt, and unique to the message."""
        return f"{self._delivery.namespace}:{self._delivery.queue}:{self._delivery.id}"

    @property
    def state(self) -> dict[str, Any] | None:
        """What `checkpoint` stored last, in this attempt or an earlier one; None if it was never called."""
        state = self._delivery.state
        return None if state is None else decoded_object(state, self._codec)

    @property
    def headers(self) -> Mapping[str, str]:
        """Names and texts that the producer sent beside the payload."""
        return MappingProxyType(self._delivery.headers or {})

    @property
    def occurrence(self) -> datetime | None:
        """The instant at which the message's recurrence was due. None for a message that no recurrence has yielded."""
        instant = self._delivery.occurrence
        return None if instant is None else datetime_of(instant)

    @property
    def previous(self) -> Previous | None:
        """The message before this one, or None. For an occurrence: the last occurrence of the same recurrence that was
        completed before this attempt began. For a link of a chain: the link before. For a callback of a message: that
        message. Its ``instant`` and ``completed`` may be None in a later version."""
        if self._delivery.previous is None:
            return None
        instant, completed, result, *named = self._delivery.previous
        message_id, state = named or ("", State.COMPLETED)
        return Previous(datetime_of(instant), datetime_of(completed), self._decoded(result), message_id, State(state))

    @property
    def batch(self) -> Batch | None:
        """The batch of which the message is a member or a callback; None if there is none."""
        if self._batch is None and self._delivery.batch is not None:
            from pollconsumer.runtime.handling.handler_batches import MemberBatch  # few messages are of a batch

            self._batch = MemberBatch(*self._delivery.batch, self._ask_batch, self._add_of_batch, self._start)
        return self._batch

    def _ask_batch(self, *question: Any) -> Any:
        if self._ended:
            raise UsageError("context.batch", "after the attempt", "ask before the handler ends")
        answer = self._situation.ask_batch(*question)
        if question[0] != "members":
            return answer
        found, after = answer
        return [(*each[:4], self._decoded(each[4]), each[5], self._decoded(each[6]), each[7]) for each in found], after

    def _decoded(self, value: Any) -> Any:
        return decoded_value(value, self._codec)

    def time_left(self) -> float:
        """Seconds until the handler's limit, or until a platform ends the launch, whichever is first; at least 0."""
        return max(0.0, self._deadline - self._situation.clock())

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the launch got a signal, its lease is lost, time is over, or the message was asked to
        stop."""
        return self._situation.cancelled() or self.time_left() == 0 or self.stop_asked

    @property
    def stop_asked(self) -> bool:
        """Whether somebody asked to stop this message, by ``cancel --running`` or ``message.stop()``."""
        return self._situation.stop_asked(self._message)

    def enqueue(
        self,
        handler: str,
        payload: Mapping[str, Any] | None = None,
        *,
        copy_headers: bool = False,
        **options: Unpack[SendOptions],
    ) -> str:
        """Enqueue a message atomically with the completion of this one. Returns its id.

        Nothing is enqueued if the handler raises. With ``copy_headers`` the new message also has this message's
        headers. Options and errors are those of ``PollConsumer.enqueue``. A duplicate, by id or by key, is dropped.
        BadData beyond 1000 messages, or 16 MiB of payloads. UsageError in a thread that outlives the attempt.

        In ``on_failure``, ``on_dead`` and ``on_expired``, after the settlement, it is enqueued immediately."""
        defaults = self._situation.defaults_of(handler)
        if options.get("queue") is None:
            options["queue"] = defaults.queue
        if copy_headers:
            options["headers"] = {**self.headers, **(options.get("headers") or {})}
        message = self._drafted(defaults.rated(new_message(handler, {} if payload is None else payload, **options)))
        if self._settled and self._situation.send is not None:
            with Shield():
                return self._situation.send(message)
        with Shield(), self._adding:
            self._add(message)
        return message.id

    def start_batch(
        self,
        id: str,  # noqa: A002  as in PollConsumer.batch
        *,
        then: Sendable | None = None,
        failed: Sendable | None = None,
        ended: Sendable | None = None,
        expires: Span | None = None,
        cancelled_as: Literal["completed"] | None = None,
    ) -> Batch:
        """Start a batch. It is stored when this message is completed; if the handler raises, it is not. Its ``add``
        adds members, which count towards the limits of `enqueue`. For the options see ``PollConsumer.batch``."""
        given: BatchOptions = {"then": then, "failed": failed, "ended": ended, "expires": expires}
        return self._start(id, {**given, "cancelled_as": cancelled_as})

    def _start(self, id: str, options: BatchOptions, within: str = "", added: int = 0) -> StartedBatch:  # noqa: A002
        """Start a batch. ``within``: for an inner batch, the outer batch's queue. ``added``: by how many members the
        outer batch grows."""
        from pollconsumer.runtime.handling.handler_batches import StartedBatch, new_batch

        with Shield(), self._adding:
            given = new_batch(id, codec=self._codec, within=within, **options)
            self._added += added
            return StartedBatch(given, self._ask_batch, self._add_of_batch, self._start, self._started)

    def _add_of_batch(self, message: NewMessage, added: int = 0) -> None:
        with Shield(), self._adding:
            self._add(self._drafted(message))
            self._added += added

    def _drafted(self, message: NewMessage) -> NewMessage:
        if self._situation.before_enqueue:
            message = drafted(message, self._situation.before_enqueue)
        if self._codec is None:
            return message
        return coded(message, self._codec)

    def _add(self, message: NewMessage) -> None:
        if self._settled and self._situation.send is None:
            fix = "nothing is sent with the completion of one of its messages: call app.enqueue"
            raise UsageError("context.enqueue in a bulk call", message.handler, fix)
        if self._settled:
            raise UsageError("a batch", "after the attempt", "enqueue messages one by one here")
        if self._ended:
            raise UsageError("context.enqueue", "after the attempt", "enqueue before the handler ends")
        if self._own_journal is not None:
            self._own_journal.refuse_in_step("context.enqueue")
        size = sum(len(each.payload) for each in self._enqueued) + len(message.payload)
        if len(self._enqueued) == MOST_ENQUEUED or size > MOST_BYTES:
            rule = f"at most {MOST_ENQUEUED} messages and {MOST_BYTES} bytes go with one completion"
            raise BadData("context.enqueue", f"message {len(self._enqueued) + 1}, {size} bytes", rule)
        self._enqueued.append(message)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far the message has come: ``done`` of ``total``, if that is known, and a note of at most 200
        characters.

        ``status`` shows the last report within about a second. The handler does not wait for the store, and gets no
        error if the store does not answer. BadData for a number that is not finite, or a long note."""
        reported = checked(done, total, note)
        if not self._ended and not self._settled:
            self._situation.report(self._message, reported)

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Store ``state``, a JSON object of at most 1 MiB, as `Context.state` of this attempt and later ones.

        It survives the death of the process. ``raise Yield`` then releases the message, and no attempt is charged: the
        next launch continues. LeaseLost if the message is no longer this launch's. UsageError in hooks after the
        settlement, such as ``on_dead``, and in a thread that outlives the attempt."""
        if self._settled or self._ended:
            raise UsageError("context.checkpoint", "after the attempt", "save it before the handler ends")
        given = dict(state)
        encoded = encode_payload(given)
        if self._codec is not None and not is_encoded(given):
            given = json.loads(encoded_json(encoded, self._codec))
            encoded = encode_payload(given)
        with Shield():
            self._situation.save(self._message, encoded)
        self._delivery = self._delivery._replace(state=given)

    def step(self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Call ``function(*args, **kwargs)``, record its result under ``name``, and return the result. Later attempts
        get the recorded result without a call.

        The result must be JSON, at most 64 KiB; a tuple becomes a list. A second step with the same name is recorded as
        ``name#2``. The function is called at least once, and its result is recorded at most once. BadData for a result
        without JSON form, or beyond 1000 steps or 1 MiB in a message. LeaseLost if the message is no longer this
        launch's. UsageError if the message is delivered at most once, for a coroutine function, and after the
        attempt."""
        return cast("T", self._journal("context.step").step(name, function, *args, **kwargs))

    async def step_async(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """`step` for a coroutine function or a plain one, to be awaited."""
        return await self._journal("context.step_async").step_async(name, function, *args, **kwargs)

    def sleep(self, duration: Span, name: str = "sleep") -> None:
        """End the attempt, uncharged, and free its slot. A launch calls the handler again after ``duration``: seconds,
        text such as ``3d``, or a timedelta. Then its recorded steps and this sleep return at once. Errors as of `step`.

        It raises an exception to end the attempt, so do not catch BaseException around it."""
        self._journal("context.sleep").sleep(duration, name)

    def wait_for(self, signal: str, timeout: Span | None = None) -> Any:
        """The value of the first ``signal`` of that name that ``message.signal`` sent to this message. None if none
        came within ``timeout``, counted from the first call: seconds, text such as ``7d``, or a timedelta; ten years by
        default.

        Until a signal comes, the slot is free, and the handler is called again then, as with `sleep`. Errors as of
        `step`."""
        return self._journal("context.wait_for").wait_for(signal, timeout)

    def call(
        self, message: str | Sendable, payload: Mapping[str, Any] | None = None, *, timeout: Span | None = None
    ) -> Any:
        """The result of another message, which is enqueued at once. It is recorded as a step, so later attempts get the
        result without another message. ``message``: a handler's name, with its ``payload``, or ``handler.args(…)``.

        Until the result is there, the slot is free, as with `sleep`. ChildFailed if the other message is not completed,
        or has not ended within ``timeout``: seconds, text such as ``1h``, or a timedelta, counted from the first call;
        ten years by default. The other message then goes on. A result is at most 64 KiB of JSON. Results and signals of
        this message are at most 1 MiB together; for a result beyond that ChildFailed is raised, too. UsageError for a
        message with an id, a key, callbacks, or this message's order key; otherwise the errors are those of `step`."""
        if not isinstance(message, str):
            return self.call_many([message], timeout=timeout)[0]
        defaults = self._situation.defaults_of(message)
        made = new_message(message, {} if payload is None else payload, queue=defaults.queue)
        return self._call([defaults.rated(made)], timeout)[0]

    def call_many(self, messages: Sequence[Sendable], *, timeout: Span | None = None) -> list[Any]:
        """`call` for several messages, each ``handler.args(…)``, enqueued together. Returns their results in the same
        order. Once all have ended, ChildFailed is raised for the first one that was not completed."""
        return self._call([message_of(each, "context.call") for each in messages], timeout)

    def _call(self, messages: Sequence[NewMessage], timeout: Span | None) -> list[Any]:
        journal = self._journal("context.call")
        for each in messages:
            refuse_own_identity(each, "context.call")
            if each.continuation:
                raise UsageError("context.call", "of a message with callbacks, or of a chain", "call one message")
        drafted = [(self._drafted(each), self._situation.defaults_of(each.handler).aliases) for each in messages]
        answers = journal.call(drafted, (self.queue, self.id), timeout)
        for answer in answers:
            if answer["state"] != State.COMPLETED:
                raise ChildFailed(answer["id"], answer["state"], answer["error"])
        return [self._decoded(answer["result"]) for answer in answers]

    def _record(self, entry: StepEntry) -> None:
        """Record a step. The handler's own process, if it has one, may have encoded the result already."""
        assert self._situation.record is not None
        if self._codec is not None:
            name, at, result, *until = json.loads(entry.json)
            if not is_encoded(result):
                result = json.loads(encoded_json(json.dumps(result, ensure_ascii=False).encode(), self._codec))
            text = json.dumps([name, at, result, *until], ensure_ascii=False, separators=(",", ":"))
            entry = entry._replace(json=text)
        self._situation.record(self._message, entry)

    def _journal(self, what: str) -> Journal:
        if self._settled or self._ended:
            raise UsageError(what, "after the attempt", "take steps before the handler ends")
        if self._situation.record is None:
            raise UsageError(what, "delivered at most once", "let the handler be delivered at least once, the default")
        return self._opened_journal()

    def _opened_journal(self) -> Journal:
        if self._own_journal is None:
            found = Recorded.of(self._delivery.recorded)
            steps = [each._replace(result=self._decoded(each.result)) for each in found.steps]
            signals = [each._replace(value=self._decoded(each.value)) for each in found.signals]
            decoded = found._replace(steps=steps, signals=signals)
            self._own_journal = Journal(decoded, self._record, self._server_ms)
        return self._own_journal

    def _server_ms(self) -> int:
        at, shown_at = self._delivery.shown
        return at + int((self._situation.clock() - shown_at) * 1000)


class LaunchContext(Context):
    """A `Context` with more methods, for the launch or for the process in which the handler runs."""

    unasked: Sequence[str] | None = None
    """Set when the attempt has ended: names of recorded steps that this attempt did not ask for; None if none are
    recorded."""
    _opened: Sequence[NewBatch] = ()

    def after_settlement(self) -> LaunchContext:
        """A copy for the hooks called after the settlement. Threads that the handler left behind do not have it."""
        return LaunchContext(self._delivery, self._situation, self._message, settled=True)

    def messages(self, delivered: Iterable[Delivery]) -> list[LaunchContext]:
        """One context for each message of a bulk call, for hooks."""
        situation = self._situation._replace(send=None)
        return [LaunchContext(each, situation, settled=True) for each in delivered]

    def end(self) -> None:
        """The attempt has ended: `enqueue` is refused from now on, in threads that the handler left behind."""
        with self._adding:
            self._ended = True
        if self.unasked is None and self._delivery.recorded is not None:
            try:
                self.unasked = self._opened_journal().unasked()
            except Undecodable:  # the recorded payload cannot be compared
                self.unasked = ()

    def limit(self, seconds: float) -> None:
        """Start the handler's timeout of ``seconds``."""
        self._deadline = self._situation.ends_by(self._situation.clock(), limit=seconds)
        self._situation.extend(self._message, self._deadline)

    @property
    def delivery(self) -> Delivery:
        return self._delivery

    @property
    def deadline(self) -> float:
        """The instant at which the handler must have ended, on the monotonic clock."""
        return self._deadline

    @property
    def enqueued(self) -> list[NewMessage]:
        """Messages to enqueue with the completion."""
        return self._enqueued

    @property
    def leaves(self) -> bool:
        """Whether there are messages to enqueue, or batches to open, with the completion."""
        return bool(self._enqueued or self._started or self._opened)

    @property
    def added(self) -> int:
        """How many members, messages or inner batches, the completion adds to this message's batch."""
        return self._added

    def batches(self) -> list[NewBatch]:
        """Batches to open with the completion."""
        return [*self._opened, *(closed() for closed in self._started)]

    def left(self, enqueued: Sequence[NewMessage], opened: Sequence[NewBatch], added: int) -> None:
        """Take over what is enqueued and opened with the completion, as the handler's own process has reported it."""
        self._enqueued += enqueued
        self._opened, self._added = opened, added

    def record(self, entry: StepEntry) -> None:
        """Record a step that the handler's own process has reported."""
        self._record(entry)

    def ask_batch(self, *question: Any) -> Any:
        """The answer to a question about a batch, which the handler's own process has asked."""
        return self._ask_batch(*question)

    def __dir__(self) -> list[str]:
        return dir(Context)  # what a handler may use
