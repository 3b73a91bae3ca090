"""Messages and recurrences as JSON objects, for ``--json`` and for endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pollconsumer.core.messages.codec import shown_value
from pollconsumer.core.messages.message_steps import Recorded
from pollconsumer.core.notation.instants import iso
from pollconsumer.core.notation.text import site_of

if TYPE_CHECKING:
    from pollconsumer.store.reading.messages import Message
    from pollconsumer.store.recurrences import RecurrenceStatus


def describe(message: Message) -> dict[str, Any]:
    """A message as ``--json`` shows it."""
    row, progress = message.row, message.progress
    return {
        "id": message.id,
        "queue": message.queue,
        "handler": row.handler,
        "state": message.state.value,
        "priority": row.priority,
        "order_key": message.order_key,
        "attempts": row.attempts,
        "generation": row.generation,
        "payload": shown_value(message.payload),
        "headers": dict(message.headers),
        "created_by": message.created_by,
        "expires_at": None if message.expires_at is None else iso(message.expires_at),
        "last_error": message.last_error,
        "traceback": message.traceback,
        "waits_for_concurrency_key": row.waiting and message.waits_for is None,
        "waits_for_message": message.waits_for,
        "waits_for_rate_key": row.booked,
        "result": shown_value(message.result),
        "stop_asked_at": message.stop_asked_at and iso(message.stop_asked_at),
        "progress": progress and progress._asdict() | {"at": iso(progress.at)},
        "timestamps": {name: None if at is None else iso(at) for name, at in row.timestamps._asdict().items()},
        "durations": message.durations,
    }


def recorded_as_json(recorded: Recorded) -> dict[str, Any]:
    """A message's steps, the signal that it awaits, and the signals sent to it, as ``--json`` shows them."""
    return {
        "steps": [
            {"name": name, "at": iso(at), "result": shown_value(result), "until": until and iso(until)}
            for name, at, result, until in recorded.steps
        ],
        "awaits": recorded.awaited or None,
        "signals": [{"name": name, "at": iso(at), "value": shown_value(value)} for name, at, value in recorded.signals],
    }


def log_as_json(message: Message) -> list[dict[str, Any]]:
    """The lines that a message's attempts have logged, as ``--json`` shows them."""
    return [{"attempt": each.attempt, "at": iso(each.at), "text": shown_value(each.text)} for each in message.log]


def describe_recurrence(status: RecurrenceStatus) -> dict[str, Any]:
    """A recurrence as ``--json`` shows it. If its definition is unreadable, the fields of the definition are None."""
    rule, previous = status.recurrence, status.previous
    previous = previous and previous._replace(result=shown_value(previous.result))
    options = {} if rule is None else dict(rule.options)

    def defined(*names: str) -> dict[str, Any]:
        return {name: getattr(rule, name, None) for name in names}

    return {
        "name": status.name,
        **defined("rule", "timezone", "handler"),
        "queue": status.queue,
        "payload": rule and shown_value(rule.payload),
        **defined("enabled"),
        "next": _next(status),
        **defined("missed", "overlap"),
        "enqueued": status.enqueued,
        "skipped": status.skipped,
        "last": status.last,
        "last_state": status.last_state,
        "last_result": previous and previous.result,
        "previous": previous
        and {"instant": iso(previous.instant), "completed_at": iso(previous.completed), "result": previous.result},
        "owners": list(status.owners),
        **defined("headers", "times"),
        "expires_seconds": options.pop("expires", None),
        "timeout_seconds": options.pop("timeout", None),
        **{name: options.get(name) for name in ("max_attempts", "retry")},
        **{name: options.get(name) for name in ("concurrency_key", "concurrency_limit", "order_key")},
        "rate_key": (rule and rule.rate_key) or None,
        "rate": (rule and rule.rate) or None,
        "until": rule and rule.until and iso(rule.until),
        **defined("created_by"),
        "created_at": rule and rule.created and iso(rule.created),
        "ping": rule and rule.ping and site_of(rule.ping),
        "error": status.error,
    }


def _next(status: RecurrenceStatus) -> str | None:
    if status.recurrence is not None and not status.recurrence.enabled:
        return "disabled"
    if status.paused:
        return "paused"
    if status.ended:
        return "ended"
    return None if status.next is None else iso(status.next)
