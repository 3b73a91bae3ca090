"""The journal of the message in flight: steps that earlier attempts recorded, and those of this attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import isawaitable, iscoroutine
from json import loads
from threading import Lock
from typing import Any

from pollconsumer.core.errors import BadData, UsageError
from pollconsumer.core.messages.continuation import Continuation, Packed, encoded, following_id
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.message_steps import (
    MOST_BYTES,
    MOST_NAME,
    MOST_STEPS,
    Recorded,
    Step,
    StepEntry,
    as_json,
    as_recorded,
    check_step_name,
)
from pollconsumer.core.retry import Asleep
from pollconsumer.core.spans import YEAR, Span, parse_duration
from pollconsumer.runtime.handling.shield import Shield

LONGEST_WAIT = 10 * YEAR
_STEP: ContextVar[str] = ContextVar("step", default="")
"""The name of the step whose function is called now; empty outside of steps."""


class Journal:
    """The steps of a message. ``store`` records a step. ``now`` returns the server's epoch ms, or a little less."""

    def __init__(self, recorded: Recorded, store: Callable[[StepEntry], None], now: Callable[[], int]) -> None:
        self._store, self._now = store, now
        self._signals = {sent.name: sent.value for sent in recorded.signals}
        self._numbers = {step.name: (number, step) for number, step in enumerate(recorded.steps, 1)}
        self._count, self._size, self._awaited = len(recorded.steps), recorded.size, recorded.awaited
        self._asked: dict[str, int] = {}
        self._lock = Lock()
        self._unasked = {step.name for step in recorded.steps} - {""}

    def unasked(self) -> list[str]:
        """The names of recorded steps that this attempt has not asked for, in the order of recording."""
        return [name for name in self._numbers if name in self._unasked]

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        name, known = self._ask(name)
        if known is not None and known.until is None:  # GUARD a recorded step
            return known.result
        with _calling(name):
            result = function(*args, **kwargs)
        if isawaitable(result):
            if iscoroutine(result):
                result.close()  # else the interpreter warns that it was never awaited
            raise UsageError("context.step", name, "its function must be awaited: use await context.step_async")
        return self._recorded(name, result)

    async def step_async(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        name, known = self._ask(name)
        if known is not None and known.until is None:  # GUARD a recorded step, awaited
            return known.result
        with _calling(name):
            result = function(*args, **kwargs)
            result = await result if isawaitable(result) else result
        return self._recorded(name, result)

    def refuse_in_step(self, what: str) -> None:
        """Raise UsageError in a step's function. ``what`` is an action that takes effect only if this attempt
        completes. If it does not, later attempts skip the step, and ``what`` would be lost."""
        if step := _STEP.get():  # GUARD nothing that is lost goes with a step
            raise UsageError(what, f"in the step {step}", "enqueue beside the step, or at once: app.enqueue")

    def sleep(self, duration: Span, name: str) -> None:
        ends_in = _milliseconds("context.sleep", duration)
        name, known = self._ask(name)
        if known is None:  # GUARD a sleep counts from its first call
            now = self._now()
            known = self._record(Step(name, now, None, now + ends_in))
        if known.until is not None and known.until > self._now():  # GUARD a sleep ends
            raise Asleep(known.until)

    def wait_for(self, signal: str, timeout: Span | None) -> Any:
        ends_in = _milliseconds("context.wait_for", LONGEST_WAIT if timeout is None else timeout)
        name, known = self._ask(signal, "signal name")
        if known is not None and known.until is None:  # GUARD a wait that has ended
            return known.result
        now = self._now()
        if signal in self._signals:  # GUARD a signal that is there
            return self._record(Step(name, now, self._signals[signal])).result
        until = (known and known.until) or now + ends_in  # GUARD a wait counts from its first call
        if known is not None and until <= now:  # GUARD a wait ends
            return self._record(Step(name, now)).result
        if known is None or self._awaited != signal:
            self._record(Step(name, now, None, until), awaited=signal)
        raise Asleep(until)

    def call(
        self, messages: Sequence[tuple[NewMessage, Sequence[str]]], caller: tuple[str, str], timeout: Span | None
    ) -> list[Packed]:
        """The answers of ``messages``, each given with the aliases of its handler. Raises Asleep unless all have ended.
        ``caller``: the caller's queue and id."""
        ends_in = _milliseconds("timeout of context.call", LONGEST_WAIT if timeout is None else timeout)
        awaited, signals = self._awaited, list[str]()
        answers, waiting, added = list[Packed](), list[tuple[Step, str, NewMessage]](), False
        for message, aliases in messages:
            named, *earlier = (f"call {each}".replace("#", "_")[:MOST_NAME] for each in (message.handler, *aliases))
            name, known = self._ask(named, earlier=earlier)
            now = self._now()
            if known is None:  # GUARD a call counts from its first attempt
                known, added = self._record(Step(name, now, None, now + ends_in)), True
            # GUARD a call is not that of the same step before the steps were dropped
            called_at = f"{known.at:x}"
            signal = f"{name}#{called_at}"  # nobody else can send a signal with # in its name
            signals.append(signal)
            child = _child(message, caller, signal, f":call-{self._numbers[name][0]}@{called_at}")
            if known.until is not None and signal in self._signals:  # GUARD an answer that is there
                known = self._record(Step(name, now, self._signals[signal]))
            elif known.until is not None and known.until <= now:  # GUARD a call ends
                known = self._record(Step(name, now, {"id": child.id, "state": "", "error": "it took too long"}))
            if known.until is None:
                answers.append(known.result)
            else:
                waiting.append((known, signal, child))
        if not waiting:
            return answers
        first, signal, _ = waiting[0]
        # A message that awaits an answer has enqueued all but what this attempt added. Otherwise it may enqueue some
        # again, which their ids make harmless.
        called = [] if awaited in signals and not added else [message for _, _, message in waiting]
        if awaited != signal or self._awaited != awaited:
            self._record(first, signal, called)
        raise Asleep(min(step.until or 0 for step, _, _ in waiting))

    def _ask(self, name: str, what: str = "step name", earlier: Sequence[str] = ()) -> tuple[str, Step | None]:
        """The name under which the step is recorded, such as ``name#2``, and the step if it is recorded, else None.
        ``what``: what ``name`` is, for errors. ``earlier``: other names that an earlier attempt may have given it."""
        check_step_name(name, what)
        with self._lock:
            times = self._asked[name] = self._asked.get(name, 0) + 1
            number = "" if times == 1 else f"#{times}"
            if name + number not in self._numbers:  # GUARD a call of a handler that was renamed
                name = next((each for each in earlier if each + number in self._unasked), name)
                self._asked[name] = times
        name += number
        self._unasked.discard(name)
        _, known = self._numbers.get(name, (0, None))
        if known is None and self._count >= MOST_STEPS:  # before its function is called
            raise BadData("step", name, f"a message has at most {MOST_STEPS}; divide its work among messages")
        return name, known

    def _recorded(self, name: str, result: Any) -> Any:
        """Record a result. Returns what later attempts get: the result after its conversion to JSON."""
        text = as_json(result, f"result of step {name}")
        return self._record(Step(name, self._now(), loads(text))).result

    def _record(self, step: Step, awaited: str = "", called: Sequence[NewMessage] = ()) -> Step:
        entry = as_recorded(step)
        with Shield(), self._lock:
            number, _ = self._numbers.get(step.name, (self._count + 1, None))
            size = self._size + len(entry.encode())
            if size > MOST_BYTES:
                rule = f"the steps of a message have at most {MOST_BYTES} bytes; store results elsewhere"
                raise BadData("step", f"{step.name}, {size} bytes in all", rule)
            self._count = max(self._count, number)  # even if it is unknown whether the store has recorded it
            self._store(StepEntry(number, self._count, entry, awaited, called))
            self._numbers[step.name] = number, step
            self._size, self._awaited = size, awaited
        return step


@contextmanager
def _calling(step: str) -> Iterator[None]:
    token = _STEP.set(step)
    try:
        yield
    finally:
        _STEP.reset(token)


def _child(message: NewMessage, caller: tuple[str, str], signal: str, ending: str) -> NewMessage:
    """``message`` as a child. Its id is the caller's and ``ending``. ``caller`` gets ``signal`` when the child ends."""
    queue, name = caller
    continuation = encoded(Continuation(answers={"queue": queue, "id": name, "as": signal}))
    return message._replace(id=following_id(name, ending), continuation=continuation)


def _milliseconds(what: str, duration: Span) -> int:
    try:
        return int(min(parse_duration(duration), LONGEST_WAIT) * 1000)
    except (TypeError, ValueError) as error:
        raise BadData(what, repr(duration), str(error)) from None
