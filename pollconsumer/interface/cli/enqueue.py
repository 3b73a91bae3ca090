"""``pollconsumer enqueue``: one message, or one a line."""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TextIO

import click

from pollconsumer.core.errors import BadData, UsageError
from pollconsumer.core.message import MAX_PRIORITY
from pollconsumer.interface.cli import current_settings
from pollconsumer.interface.cli.opened import redis_store
from pollconsumer.interface.cli.output import discard
from pollconsumer.interface.cli.types import DueTime, Duration, Once, QueueName
from pollconsumer.runtime.messages import EPOCH, new_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from pollconsumer.core.message import NewMessage
    from pollconsumer.interface.settings import Settings
    from pollconsumer.store.redis_store import Enqueued

BULK = 1000
"""Lines that are read before they are sent."""
NAMES = (
    "handler",
    "payload",
    "queue",
    "priority",
    "in",
    "at",
    "key",
    "key_lifetime",
    "concurrency_key",
    "concurrency_limit",
    "id",
)
PROGRESS_EVERY = 0.2


@click.command()
@click.argument("handler", required=False)
@click.argument("payload", required=False)
@click.option("--queue", cls=Once, type=QueueName(), help="Queue; without it a command's own, else 'default'.")
@click.option("--priority", cls=Once, type=click.IntRange(-MAX_PRIORITY, MAX_PRIORITY), help="Smaller is sooner; 0.")
@click.option("--in", "in_", cls=Once, type=Duration(), help="Due after so long.")
@click.option("--at", cls=Once, type=DueTime(), help="Due at this time, ISO 8601 with an offset or Z.")
@click.option("--key", cls=Once, help="Unique key: one unfinished message of it at a time.")
@click.option("--key-lifetime", cls=Once, type=Duration(positive=True), help="The unique key lapses after so long.")
@click.option("--concurrency-key", cls=Once, help="Messages with the same one are handled one at a time,")
@click.option("--concurrency-limit", cls=Once, type=click.IntRange(1, 255), help="or so many.")
@click.option("--id", cls=Once, help="Id of your own: enqueueing it again makes no second message.")
@click.option("--ndjson", cls=Once, metavar="FILE|-", help="One message a line: handler, payload, the options as keys.")
@click.option("--json", "as_json", is_flag=True, help="Print id and duplicate as a JSON object, one line a message.")
def enqueue(handler: str | None, payload: str | None, ndjson: str | None, as_json: bool, **options: Any) -> None:
    """Enqueue a message for HANDLER and print its id. PAYLOAD is a JSON object; - reads it from standard input."""
    if ndjson is not None:
        given = [name for name, value in options.items() if value is not None]
        if handler is not None or given:
            raise UsageError("--ndjson", handler or given[0], "give handler and options as keys of each line")
        _enqueue_lines(ndjson, as_json)
        return
    if handler is None:
        raise UsageError("missing argument: HANDLER", None, "name the handler, or give --ndjson FILE")
    text = _standard_input() if payload == "-" else payload
    if options["at"] is not None:
        options["at"] = _instant(options["at"])
    options["queue"] = options["queue"] or current_settings().queue_of(handler)
    message = _message(handler, {} if text is None else parse_object("payload", text), options)
    _print(redis_store().enqueue([message]), as_json)


def parse_object(what: str, text: str) -> dict[str, Any]:
    """The JSON object in ``text``. BadData naming line and column where there is none."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        at = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno} column {error.colno}"
        raise BadData(what, text or "empty", f"no JSON at {at}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise BadData(what, text, f"no JSON that can be read: {error}") from None
    if not isinstance(value, dict):
        raise BadData(what, text, 'must be a JSON object, as in \'{"name": "Ada"}\'')
    return value


def _enqueue_lines(source: str, as_json: bool) -> None:
    """Whatever stands before a line that cannot be a message has been enqueued, and its ids printed."""
    store = redis_store()
    progress = _Progress()
    with _opened(source) as lines:
        for batch in _batches(_messages(lines)):
            for enqueued in store.enqueue_batches(batch.messages):
                _print(enqueued, as_json)
            progress.show(batch.last_line)
            if batch.error is not None:
                progress.end()
                raise batch.error
    progress.end()


class _Batch:
    """Messages read, and what stopped the reading after them."""

    def __init__(self) -> None:
        self.messages: list[NewMessage] = []
        self.last_line = 0
        self.error: BadData | None = None


def _batches(messages: Iterator[tuple[int, NewMessage]]) -> Iterator[_Batch]:
    while True:
        batch = _Batch()
        try:
            for number, message in messages:
                batch.messages.append(message)
                batch.last_line = number
                if len(batch.messages) == BULK:
                    break
            else:
                yield batch
                return
        except BadData as error:
            batch.error = error
        yield batch


def _messages(lines: Iterable[str]) -> Iterator[tuple[int, NewMessage]]:
    settings = current_settings()
    for number, line in enumerate(_decoded(lines), 1):
        if line.strip():
            where = f"line {number}"
            entry = parse_object(where, line.rstrip("\n"))
            unknown = [name for name in entry if name not in NAMES]
            if unknown:
                raise BadData(where, unknown[0], f"unknown key; the keys are {', '.join(NAMES)}")
            yield number, _line_message(where, entry, settings)


def _decoded(lines: Iterable[str]) -> Iterator[str]:
    try:
        yield from lines
    except UnicodeDecodeError as error:
        raise BadData("--ndjson", None, f"is not UTF-8: {error.reason}") from None


def _line_message(where: str, entry: dict[str, Any], settings: Settings) -> NewMessage:
    if not isinstance(entry.get("handler"), str):
        raise BadData(where, entry.get("handler"), "needs a handler, as text")
    options = {"in_" if name == "in" else name: value for name, value in entry.items()}
    handler, payload = options.pop("handler"), options.pop("payload", {})
    try:
        options["queue"] = options.get("queue") or settings.queue_of(handler)
        if options.get("at") is not None:
            options["at"] = _instant(DueTime().read(str(options["at"])))
        return _message(handler, payload, options)
    except (BadData, ValueError) as error:
        raise BadData(f"{where}: {error}") from None


def _message(handler: str, payload: dict[str, Any], options: dict[str, Any]) -> NewMessage:
    try:
        return new_message(handler, payload, **options)
    except TypeError as error:
        raise BadData(str(error)) from None


def _instant(at_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=at_ms)


def _print(enqueued: list[Enqueued], as_json: bool) -> None:
    if as_json:
        text = "\n".join(json.dumps({"id": entry.id, "duplicate": entry.duplicate}) for entry in enqueued)
    else:
        text = "\n".join(entry.id for entry in enqueued)
    try:
        click.echo(text)
    except BrokenPipeError:
        # Whoever read the ids has read enough; the messages are enqueued all the same.
        discard(sys.stdout)


def _standard_input() -> str:
    if sys.stdin.isatty():
        click.echo("pollconsumer: reading the payload from the terminal; end it with Ctrl-D", err=True)
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise BadData("standard input", None, f"is not UTF-8: {error.reason} at byte {error.start}") from None


def _opened(source: str) -> TextIO:
    try:
        return click.open_file(source, encoding="utf-8")  # type: ignore[return-value]  # opened as text
    except OSError as error:
        raise BadData("--ndjson", source, f"cannot be read: {error.strerror}") from None


class _Progress:
    """Lines so far, on a terminal that does not also show the ids."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty() and not sys.stdout.isatty()
        self._began = self._shown = time.monotonic()
        self._lines = 0

    def show(self, lines: int) -> None:
        self._lines = lines or self._lines
        now = time.monotonic()
        if self._on and now - self._shown > PROGRESS_EVERY:
            self._shown = now
            rate = self._lines / (now - self._began)
            click.echo(f"\r{self._lines} enqueued, {rate:.0f} a second ", nl=False, err=True)

    def end(self) -> None:
        if self._on and self._shown > self._began:
            click.echo(f"\r{self._lines} enqueued, done{' ' * 20}", err=True)
