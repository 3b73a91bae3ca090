"""Spans of OpenTelemetry, one for each attempt, by the semantic conventions of messaging. A span continues the trace of
the message's sender, which travels in the message's headers. Imported only when needed."""

from __future__ import annotations

from typing import Any

from pollconsumer.interface.api.app import PollConsumer
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.new_messages import Draft, add_trace

try:
    from opentelemetry import context as current
    from opentelemetry import propagate, trace
except ModuleNotFoundError as missing:
    raise ImportError("OpenTelemetry is not installed here: pip install 'pollconsumer[otel]'") from missing

__all__ = ["instrument"]
SYSTEM = "pollconsumer"


def instrument(app: PollConsumer, tracer_provider: trace.TracerProvider | None = None) -> None:
    """Have ``app`` send the current trace with each message, and record a span for each attempt of its handlers.

    A span is a child of the sender's span, and links to it. Its attributes are those of the semantic conventions of
    messaging, and ``pollconsumer.attempt``. Without ``tracer_provider`` OpenTelemetry's global one is used."""
    spans = _MessageSpans(trace.get_tracer(SYSTEM, tracer_provider=tracer_provider))
    app.before_enqueue(_send_trace)
    app.before(spans.begin)
    app.after(spans.end)
    app.on_failure(spans.fail)
    app.on_dead(spans.fail)


def _send_trace(draft: Draft) -> None:
    headers: dict[str, str] = {}
    propagate.inject(headers)  # as traceparent, and whatever else is configured
    add_trace(draft, headers)


class _MessageSpans:
    """The spans of attempts in progress, by the queues and ids of their messages."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._begun: dict[tuple[str, str], trace.Span] = {}

    def begin(self, context: Context) -> None:
        if (left := self._begun.pop((context.queue, context.id), None)) is not None:
            left.end()  # its attempt ended without an outcome: it was released, or sleeps
        sender = propagate.extract(context.headers)
        sender_span = trace.get_current_span(sender).get_span_context()
        span = self._begun[context.queue, context.id] = self._tracer.start_span(
            f"{context.handler} {context.queue}",
            sender,
            trace.SpanKind.CONSUMER,
            {
                "messaging.system": SYSTEM,
                "messaging.operation.type": "process",
                "messaging.operation.name": context.handler,
                "messaging.destination.name": context.queue,
                "messaging.message.id": context.id,
                "pollconsumer.attempt": context.attempt,
            },
            [trace.Link(sender_span)] if sender_span.is_valid else [],
        )
        current.attach(trace.set_span_in_context(span))  # the handler's own spans become its children

    def end(self, context: Context, _: Any) -> None:
        if (span := self._begun.pop((context.queue, context.id), None)) is not None:
            span.end()

    def fail(self, context: Context, error: BaseException, *_: float) -> None:
        if (span := self._begun.pop((context.queue, context.id), None)) is None:
            return  # it was never handled, or by another process
        span.record_exception(error)
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(trace.StatusCode.ERROR, str(error))
        span.end()
