"""Prints a message for commands: as one JSON object, or one property a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import CREATED_BY
from pollconsumer.core.messages.message_steps import Progress
from pollconsumer.interface.cli.output import given_row, json_text, print_quoted, print_table, printed_as_json, span

INSTANTS = {"enqueued_at": "ready since"}  # when it became ready last: after scheduled_at, if it was not due at once
DURATIONS = {"waited_seconds": "waited", "handled_seconds": "duration"}


def _shown_step(step: dict[str, Any]) -> str:
    ends = f"until {step['until']}" if step["until"] else json_text(step["result"])
    return f"{step['name']}: {ends}, at {step['at']}"


def _stop(details: dict[str, Any]) -> str:
    """When the message was asked to stop, and what has happened since."""
    if details["state"] != State.RESERVED:
        return f"at {details['stop_asked_at']}, without effect: the handler ended by itself"
    return f"at {details['stop_asked_at']}; the handler is interrupted 5s later, unless it blocks in a thread"


def print_message(details: dict[str, Any]) -> None:
    """Print a message: one JSON object with ``--json``, else one property a line."""
    if printed_as_json(details):
        return
    durations, progress = details["durations"].items(), details["progress"]
    rows: list[tuple[str, object]] = [
        *((name, details[name]) for name in ("queue", "handler", "state", "priority", "attempts")),
        *given_row("order key", details["order_key"]),
        ("payload", _json(details["payload"])),
        *(("header", f"{name}: {value}") for name, value in details["headers"].items() if name != CREATED_BY),
        *given_row("created by", details["created_by"]),
        *given_row("expires", details["expires_at"]),
        *given_row("last error", details["last_error"]),
        *given_row("result", _json(details["result"])),
        *given_row(
            "progress",
            progress and f"{Progress(progress['done'], progress['total'], progress['note'])}, at {progress['at']}",
        ),
        *given_row("checkpoint", _json(details.get("checkpoint"))),
        *(("step", _shown_step(each)) for each in details.get("steps", ())),
        *given_row("waits for", details.get("awaits") and f"signal {details['awaits']}"),
        *(
            ("signal", f"{each['name']}: {json_text(each['value'])}, at {each['at']}")
            for each in details.get("signals", ())
        ),
        *given_row("stop asked", details["stop_asked_at"] and _stop(details)),
        *given_row("waits for", details["waits_for_concurrency_key"] and "messages with its concurrency key"),
        *given_row("waits for", _head(details)),
        *given_row("waits for", details["waits_for_rate_key"] and "the rate limit of its key, until its next attempt"),
        *given_row("raw", details.get("raw")),
        *((INSTANTS.get(name, name), at) for name, at in details["timestamps"].items() if at),
        *(row for name, seconds in durations for row in given_row(DURATIONS[name], span(seconds))),
    ]
    print_table(("id", details["id"]), rows)
    if details["traceback"]:
        print_quoted(details["traceback"])
    _print_log(details.get("log", ()))


def _print_log(log: Sequence[dict[str, Any]]) -> None:
    for each in log:
        text = each["text"] if isinstance(each["text"], str) else json_text(each["text"])
        print_quoted(f"log of attempt {each['attempt']}, reserved at {each['at']}\n{text.rstrip()}")


def _head(details: dict[str, Any]) -> str | None:
    """The message that must end before this one begins, since both have one order key. None if there is none."""
    head = details["waits_for_message"]
    return head and f"{head}, before it by order key {details['order_key']}"


def _json(value: object) -> str | None:
    return None if value is None else json_text(value)
