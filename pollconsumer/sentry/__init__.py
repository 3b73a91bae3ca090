"""Sentry: a transaction for each attempt, and an event for each failure. Traces travel in the messages' headers.
Imported only when needed."""

from __future__ import annotations

from typing import Any

from pollconsumer.interface.api.app import PollConsumer
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.new_messages import Draft, add_trace

try:
    import sentry_sdk
    from sentry_sdk.scope import Scope, use_isolation_scope
    from sentry_sdk.tracing import Span
except ModuleNotFoundError as missing:
    raise ImportError("Sentry's SDK is not installed here: pip install 'pollconsumer[sentry]'") from missing

__all__ = ["instrument"]


def instrument(app: PollConsumer) -> None:
    """Have ``app`` send the current trace with each message. Sentry gets a transaction for each attempt of its
    handlers, and an event for each failure, with the message's id as a tag. Call ``sentry_sdk.init`` first."""
    transactions = _MessageTransactions()
    app.before_enqueue(_send_trace)
    app.before(transactions.begin)
    app.after(transactions.end)
    app.on_failure(transactions.fail)
    app.on_dead(transactions.fail)


def _send_trace(draft: Draft) -> None:
    trace = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
    add_trace(draft, {name: value for name, value in trace.items() if value})


class _MessageTransactions:
    """The transactions of attempts in progress, with their scopes, by the queues and ids of their messages."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], tuple[Scope, Span]] = {}

    def begin(self, context: Context) -> None:
        if (name := (context.queue, context.id)) in self._begun:
            self._begun.pop(name)[1].finish()  # it ended without an outcome: it was released, or sleeps
        scope = Scope.get_isolation_scope().fork()
        scope.set_tag("message", context.id)
        Scope.set_isolation_scope(scope)
        Scope.set_current_scope(Scope.get_current_scope().fork())
        sender = sentry_sdk.continue_trace(dict(context.headers), op="queue.process", name=context.handler)
        transaction = sentry_sdk.start_transaction(sender).__enter__()
        transaction.set_data("messaging.message.id", context.id)
        transaction.set_data("messaging.destination.name", context.queue)
        transaction.set_data("messaging.message.retry.count", context.attempt - 1)
        self._begun[name] = scope, transaction

    def end(self, context: Context, _: Any) -> None:
        if (name := (context.queue, context.id)) in self._begun:
            self._begun.pop(name)[1].finish()

    def fail(self, context: Context, error: BaseException, *_: float) -> None:
        begun = self._begun.pop((context.queue, context.id), None)
        scope, transaction = begun or (Scope.get_isolation_scope(), None)
        with use_isolation_scope(scope):
            sentry_sdk.capture_exception(error)
            if transaction is not None:  # otherwise it was never handled here
                transaction.set_status("internal_error")
                transaction.finish()
