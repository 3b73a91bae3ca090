"""One call of a bulk handler: which messages reach it, and what becomes of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pollconsumer.core.retry import Partial
from pollconsumer.core.users_code import called
from pollconsumer.runtime.handling.bulk.bulk_arguments import BulkArguments
from pollconsumer.runtime.handling.bulk.item import BulkContext
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery
from pollconsumer.runtime.handling.hooks import Hooks, Run, RunAsync
from pollconsumer.runtime.handling.outcome import DONE, CallOutcomes, Outcome, done_result, failed, returned

MESSAGES = "messages"
"""The name under which the payload of a call has its messages: pairs of a `Delivery`, or its fields, and a payload."""


class _BulkCall:
    """The ``items`` that the function is given, for all messages but those that do not fit."""

    def __init__(self, arguments: BulkArguments, payload: dict[str, Any], context: LaunchContext | None) -> None:
        self.items: list[Any] = []
        self._outcomes: list[Outcome] = []
        self._places: list[int] = []
        for delivery, content in payload[MESSAGES]:
            try:
                item = called(arguments.given, Delivery(*delivery), content)
            except Exception as error:  # it does not fit, or a type of the user's raises
                self._outcomes.append(failed(error))
            else:
                self._places.append(len(self._outcomes))
                self._outcomes.append(DONE)
                self.items.append(item)
        self.named = {}
        if arguments.takes_bulk_context:
            assert context is not None
            self.named["context"] = BulkContext(context)

    def returned(self, result: Any) -> CallOutcomes:
        """The outcomes if the function returned ``result``: None, or the results of its messages."""
        try:
            results = done_result(result)
            if results is not None:
                self._check(results)  # GUARD a result for each message
                self._end([DONE if each is None else returned(each) for each in results])
        except Exception as error:
            return self.raised(error)
        return CallOutcomes(self._outcomes)

    def raised(self, error: Exception) -> CallOutcomes:
        """The outcomes if the function raised ``error``."""
        if isinstance(error, Partial):
            beyond = [place for place in error.errors if place >= len(self.items)]
            if not beyond:  # GUARD errors of the messages that there are
                self._end([Outcome(error.errors.get(place)) for place in range(len(self.items))])
                return CallOutcomes(self._outcomes)
            text = f"Partial names message {min(beyond)}, and the call had {len(self.items)}; the first one is 0"
            error = IndexError(text)
        self._end([failed(error)] * len(self.items))
        return CallOutcomes(self._outcomes)

    def _check(self, results: object) -> None:
        wanted = f"return None, or a list of {len(self.items)} results, one of each message"
        if not isinstance(results, list | tuple):
            raise TypeError(f"it returned a {type(results).__name__}; {wanted}")
        if len(results) != len(self.items):
            raise ValueError(f"it returned {len(results)} results; {wanted}")

    def _end(self, outcomes: Sequence[Outcome]) -> None:
        for place, outcome in zip(self._places, outcomes, strict=True):
            self._outcomes[place] = outcome


def calling_bulk(function: Callable[..., Any], arguments: BulkArguments, *, asynchronous: bool) -> Run:
    """The ``run`` of a bulk handler. It returns `CallOutcomes`."""

    def run(payload: dict[str, Any], context: LaunchContext | None) -> CallOutcomes:
        call = _BulkCall(arguments, payload, context)
        try:
            return call.returned(called(function, [*call.items], **call.named) if call.items else None)
        except Exception as error:
            return call.raised(error)

    async def run_async(payload: dict[str, Any], context: LaunchContext | None) -> CallOutcomes:
        call = _BulkCall(arguments, payload, context)
        try:
            return call.returned(await function([*call.items], **call.named) if call.items else None)
        except Exception as error:
            return call.raised(error)

    return run_async if asynchronous else run


def hooked_bulk(run: Run, hooks: Hooks, timeout: float | None) -> Run:
    """``run`` between the ``before`` hooks of all messages and the ``after`` hooks of those that it completes. Its
    ``timeout`` begins after ``before``."""

    def run_hooked(payload: dict[str, Any], context: LaunchContext | None) -> CallOutcomes:
        contexts, skipped = _before(hooks, payload, context, timeout)
        return _after(hooks, contexts, skipped, run(_without(skipped, payload), context))

    return run_hooked


def hooked_bulk_coroutine(run: RunAsync, hooks: Hooks, timeout: float | None) -> RunAsync:
    """The same as `hooked_bulk`, for coroutines."""

    async def run_hooked(payload: dict[str, Any], context: LaunchContext | None) -> CallOutcomes:
        contexts, skipped = _before(hooks, payload, context, timeout)
        if timeout is not None:
            from pollconsumer.runtime.handling.coroutines.event_loop import restart_timeout

            restart_timeout()
        return _after(hooks, contexts, skipped, await run(_without(skipped, payload), context))

    return run_hooked


def _before(
    hooks: Hooks, payload: dict[str, Any], context: LaunchContext | None, timeout: float | None
) -> tuple[list[LaunchContext], list[bool]]:
    """The contexts of the call's messages, and whether each is to be skipped."""
    assert context is not None
    contexts = context.messages(Delivery(*each) for each, _ in payload[MESSAGES])
    skipped = [hooks.call("before", each) for each in contexts]
    if timeout is not None:
        context.limit(timeout)
    return contexts, skipped


def _without(skipped: Sequence[bool], payload: dict[str, Any]) -> dict[str, Any]:
    """The payload of a call without the messages that are skipped."""
    if not any(skipped):
        return payload
    # GUARD what is skipped is not in the call
    kept = [each for each, skips in zip(payload[MESSAGES], skipped, strict=True) if not skips]
    return {**payload, MESSAGES: kept}


def _after(
    hooks: Hooks, contexts: Sequence[LaunchContext], skipped: Sequence[bool], called: CallOutcomes
) -> CallOutcomes:
    """The outcomes of all messages, by those of the ones that the function was given."""
    rest = iter(called)
    outcomes = CallOutcomes(DONE if skips else next(rest) for skips in skipped)
    for context, outcome in zip(contexts, outcomes, strict=True):
        if outcome.error is None:
            hooks.call("after", context, outcome.result)
    return outcomes
