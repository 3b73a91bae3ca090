"""``pollconsumer enqueue``: one message, a message for each line, or the lines as members of a batch."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import click

from pollconsumer.core.errors import (
    BadData,
    CannotCreate,
    ConfigurationError,
    Conflict,
    OutcomeUnknown,
    QueueFull,
    StoreUnreachable,
    UsageError,
    retelling,
    suggestion,
)
from pollconsumer.core.messages.codec import coded, encoded_json, is_encoded
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.notation.instants import datetime_of, given_instant
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.api.batches import OpenBatch
from pollconsumer.interface.api.slips import BY_CONFIGURATION
from pollconsumer.interface.api.store_calls import AppCalls
from pollconsumer.interface.assembly.handlers import OwnDefaults
from pollconsumer.interface.cli import discard
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.opened import COMMAND_BUDGET, producer
from pollconsumer.interface.cli.output import (
    is_terminal,
    print_lines,
    print_notice,
    progress_bar,
    telling_when_interrupted,
    wants_json,
)
from pollconsumer.interface.cli.types import (
    DUE_TIME,
    NAMED_FILE,
    QUEUE_NAME,
    Duration,
    WordType,
    json_option,
    message_options,
    option,
    priority_option,
)
from pollconsumer.interface.configured_store import NOT_SPOOLED, spool_instead
from pollconsumer.runtime.handling.handler_batches import new_batch
from pollconsumer.runtime.new_messages import (
    JSON_KEYS,
    LONGEST_DELAY,
    drafted,
    milliseconds,
    new_message,
    refuse_own_identity,
)
from pollconsumer.runtime.system.watchdog import lift
from pollconsumer.store.queues.producer import Enqueued, Producer

CALLBACK = "HANDLER[=PAYLOAD]"
BULK, BULK_BYTES = 1000, 4 * 2**20
"""Lines are enqueued together until there are so many, or until they have so many bytes."""
CALLBACKS = ("then", "failed", "ended")
NO_CALLBACKS = "a line has no callbacks: a batch of lines has, as --then HANDLER; a message in Python, using(then=…)"
LONGEST_EXAMPLE = 400
"""Maximum length, in characters, of a wrong text for which an error suggests a correction."""
WORDS = re.compile(
    r"""(?P<json>"(?:[^"\\]|\\.)*")|'(?P<quoted>[^'"\\]*)'|[^\s"'{}\[\],:](?:[^"'{}\[\],:]*[^\s"'{}\[\],:])?"""
)
"""Names and values of an object that is written in JSON or a similar form."""
PYTHONS = {"True": "true", "False": "false", "None": "null"}
GO_ON = "repeat the command with all lines within an hour: lines that are members already are not added twice"


@click.command(
    epilog="""pollconsumer enqueue mail.send '{"to": "a@b"}' --in 5m\npollconsumer enqueue --ndjson messages.ndjson
pollconsumer enqueue --ndjson rows.ndjson --batch import-42 --then report.send"""
)
@click.argument("handler", required=False)
@click.argument("payload", required=False)
@option("--queue", "Queue to send it to. Default: the handler's.", QUEUE_NAME)
@priority_option(" Default: 0.")
@option("--in", "Handle it after this time, as 5m.", Duration(most=LONGEST_DELAY), name="in_")
@option("--at", "Handle it at this time, ISO 8601 with an offset or Z.", DUE_TIME)
@option("--key", "Unique key: if an unfinished message has the same key, enqueue nothing, and print that message's id.")
@option("--key-lifetime", "Free the unique key after this time.", Duration(positive=True, most=LONGEST_DELAY))
@option(
    "--key-scope",
    "The key is unique among the handler's messages, or in the whole queue. Default: handler.",
    WordType(["handler", "queue"]),
)
@option(
    "--key-until", "Free the key when the message ends, or when it starts. Default: end.", WordType(["end", "start"])
)
@click.option("--replace", is_flag=True, default=None, help="With --key: replace the waiting message that has the key.")
@option(
    "--at-most",
    "With --replace: due at the latest this long after it was first enqueued, however often it is replaced.",
    Duration(most=LONGEST_DELAY),
)
@option("--id", "Id of the message. If there is a message with it, enqueue nothing.")
@message_options
@option("--created-by", "Who creates it, as shown by 'list'.")
@option(
    "--ndjson",
    "Enqueue a message for each line: a JSON object with handler, payload and options.",
    NAMED_FILE,
    metavar="FILE|-",
)
@option("--skip", "Skip this many lines of --ndjson.", click.IntRange(0), default=0)
@option("--batch", "With --ndjson: make a batch of the lines. Its members get the ids ID.0, ID.1, …", metavar="ID")
@option("--then", "With --batch: enqueue this when all members are completed.", metavar=CALLBACK)
@option(
    "--failed",
    "With --batch: enqueue this once, as soon as any member is dead, cancelled or expired.",
    metavar=CALLBACK,
)
@option("--ended", "With --batch: enqueue this when all members have ended, in whatever state.", metavar=CALLBACK)
@json_option("Print a JSON object for each message, with the keys id and duplicate.")
def enqueue(
    handler: str | None,
    payload: str | None,
    ndjson: str | None,
    skip: int,
    batch: str | None,
    then: str | None,
    failed: str | None,
    ended: str | None,
    **options: Any,
) -> None:
    """Enqueue a message for HANDLER and print its id.

    PAYLOAD is a JSON object; - reads it from standard input. With --batch, print the id of the batch; running the same
    command again then adds no member twice."""
    callbacks = {"then": then, "failed": failed, "ended": ended}
    _refuse_without_batch(ndjson, skip, batch, callbacks)
    if ndjson is not None:
        given = [name for name, value in options.items() if value is not None]
        if handler is not None or given:
            raise UsageError("--ndjson", handler or given[0], "give handler and options as keys of each line")
        if batch is not None:
            Report().show([enqueue_batch(ndjson, batch, callbacks)])
            return
        report = Report(counting=is_terminal(sys.stdout), line=skip)
        try:
            with telling_when_interrupted(report.so_far):
                _enqueue_lines(ndjson, skip, report)
        finally:
            report.end()
        return
    if skip:
        raise UsageError("--skip", skip, "it skips lines of --ndjson: give that, too")
    if handler is None:
        raise UsageError("missing argument: HANDLER", None, "name the handler, or give --ndjson FILE")
    given_payload = payload_of(payload)
    if options["at"] is not None:
        options["at"] = datetime_of(options["at"])
    message = own_message(handler, given_payload, options, OwnDefaults(current_settings()))
    report = Report()
    try:
        (enqueued,) = producer().enqueue([message])
        report.show([enqueued])
        if enqueued.duplicate and not (wants_json() or options["replace"]):
            how = f"queued with key {options['key']}" if options["key"] else "enqueued"
            print_notice(f"already {how}: {enqueued.id}; not enqueued again")
    except (StoreUnreachable, CannotCreate) as error:
        _spool([message], error, report)


def _refuse_without_batch(
    ndjson: str | None, skip: int, batch: str | None, callbacks: Mapping[str, str | None]
) -> None:
    """Raise UsageError for options that need ``--batch`` or ``--ndjson``, and for ``skip`` with a batch."""
    given = next((name for name, callback in callbacks.items() if callback is not None), None)
    if batch is None and given is not None:
        raise UsageError(f"--{given}", callbacks[given], "it is the callback of a batch: give --batch ID, too")
    if batch is not None and ndjson is None:
        raise UsageError("--batch", batch, "its members are lines: give --ndjson FILE, too")
    if batch is not None and skip:
        raise UsageError(
            "--skip", skip, "leave it out with --batch: lines that are members already are not added twice"
        )


def payload_of(text: str | None) -> dict[str, Any]:
    """The payload of an argument; ``-`` reads standard input, None is an empty payload. BadData if it is no object."""
    if text is None:
        return {}
    if text == "-":
        refuse_closed_input()
        lift()  # until the settings are read
        if sys.stdin.isatty():
            print_notice("reading the payload from the terminal; end it with Ctrl-D")
        try:
            text = sys.stdin.read()
        except UnicodeDecodeError as error:
            raise BadData("standard input", None, f"is not UTF-8: {error.reason} at byte {error.start}") from None
    return parse_object("payload", text)


def checked_payload(handler: str, text: str) -> bytes:
    """The payload in ``text``, as the store keeps it. BadData if the configured handler would refuse it."""
    payload = payload_of(text)
    known = OwnDefaults(current_settings()).checked(handler, payload, fix=BY_CONFIGURATION)
    with refusing("codec", handler, "encode"):
        return encoded_json(encode_payload(payload), known and known.definition.codec)


def _enqueue_lines(source: str, skip: int, report: Report) -> None:
    """Enqueue the lines of ``source``. The error for a refused line says how many lines before it were accepted, and
    how to continue."""
    store, own_defaults = producer(), OwnDefaults(current_settings())
    lift()
    with opened_lines(source) as file, progress_bar(size := size_of(file), shown=report.shows_progress) as bar:
        given = ((number, line) for number, line in enumerate(file, 1) if number > skip and line.strip())
        for part in _parts(given):
            lines = [number for number, _ in part]
            messages: list[NewMessage] = []
            refused = None
            for _, line in part:
                try:
                    messages.append(line_message(line, own_defaults))
                except BadData as error:
                    refused = error
                    break
            _enqueue_page(store, messages, lines, report)
            if refused is not None:
                raise _refused(refused, lines[len(messages)], report.accepted)
            bar.update(len(part) if size is None else file.tell() - bar.pos)


def _parts(lines: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Numbered lines, as many at a time as are enqueued together."""
    part, size = list[tuple[int, bytes]](), 0
    for each in lines:
        part.append(each)
        size += len(each[1])
        if len(part) == BULK or size >= BULK_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _enqueue_page(store: Producer, messages: list[NewMessage], lines: list[int], report: Report) -> None:
    before, report.unanswered = report.accepted, lines[: len(messages)]
    try:
        if report.spools is not None:
            _spool(messages, report.spools, report)
            return
        try:
            for enqueued in store.enqueue_pages(messages):
                report.show(enqueued)
        except (StoreUnreachable, CannotCreate) as error:
            _spool(messages[report.accepted - before :], error, report)
    except Conflict as error:
        left = slice(report.accepted - before, error.at)
        _enqueue_page(store, messages[left], lines[left], report)
        raise _refused(error, lines[error.at], report.accepted) from None
    except QueueFull as error:
        on = f"{report.accepted} accepted before that: go on with --skip {report.unanswered[0] - 1}"
        raise QueueFull(f"{error}; {on}") from None
    except StoreUnreachable as error:
        raise _cut_off(error, report.unanswered, report.accepted) from None


def _spool(messages: list[NewMessage], error: StoreUnreachable | CannotCreate, report: Report) -> None:
    """Spool messages, and report ``error``, the reason, once. If they cannot be spooled, raise ``error``."""
    settings = current_settings()
    if settings.spool is None:
        raise error
    before = len(error.accepted)
    try:
        spool_instead(settings, messages, error)
    except (StoreUnreachable, CannotCreate):
        report.show([(message_id, None) for message_id in error.accepted[before:]])
        raise
    report.show([(message.id, None) for message in messages])
    if report.spools is None:
        print_notice(f"{error}; spooled in {settings.spool_directory()}: a launch will enqueue it")
    report.spools = error


def _refused(error: BadData, line: int, accepted: int) -> BadData:
    return BadData(f"line {line}: {error}; {accepted} accepted before it: correct it and go on with --skip {line - 1}")


def _cut_off(error: StoreUnreachable, lines: list[int], accepted: int) -> StoreUnreachable:
    """An error for ``lines`` that were not accepted, since the store could not be reached. If the outcome is unknown,
    it names the lines that may have been accepted."""
    if isinstance(error, OutcomeUnknown):
        _, spool, refusal = str(error).partition(NOT_SPOOLED)
        unknown = f"lines {lines[0]} to {lines[: len(error.ids)][-1]}"
        rest = f"those with an id may be repeated: --skip {lines[0] - 1}"
        return StoreUnreachable(f"outcome unknown: {unknown}{spool}{refusal}; {accepted} accepted before them, {rest}")
    return StoreUnreachable(f"{error}; {accepted} accepted before that: go on with --skip {lines[0] - 1}")


class Report:
    """Prints the ids of enqueued messages; if ``counting``, for a person at a terminal, only their number. If the ids
    do not go to the terminal, it shows a progress bar there."""

    def __init__(self, *, counting: bool = False, line: int = 0) -> None:
        """``line``: the number of the last skipped line; 0 without one."""
        self._counting = counting and not wants_json()
        self.shows_progress = self._counting or not is_terminal(sys.stdout)
        self._duplicates = 0
        self.accepted, self._line = 0, line
        self.spools: StoreUnreachable | CannotCreate | None = None
        """The error because of which messages are spooled. Later pages are then spooled without trying the store."""
        self.unanswered: list[int] = []
        """Numbers of the lines that are being enqueued and may not be accepted yet."""

    def so_far(self) -> str:
        """How many messages were accepted, and how to continue."""
        text = f"{self.accepted} accepted, up to line {self._line}"
        if not self.unanswered:
            return f"{text}: go on with --skip {self._line}"
        perhaps = f"perhaps some of lines {self.unanswered[0]} to {self.unanswered[-1]}"
        return f"{text}, and {perhaps}: those with an id may be repeated, with --skip {self._line}"

    def show(self, enqueued: Sequence[tuple[str, bool | None]]) -> None:
        """Show ids. ``enqueued``: each id, and whether the message is a duplicate; None if it is spooled."""
        self.accepted += len(enqueued)
        if self.unanswered:
            self._line = self.unanswered[len(enqueued) - 1]
            self.unanswered = self.unanswered[len(enqueued) :]
        self._duplicates += sum(bool(duplicate) for _, duplicate in enqueued)
        if wants_json():
            self._print({"id": message_id, "duplicate": duplicate} for message_id, duplicate in enqueued)
        elif not self._counting:
            self._print(message_id for message_id, _ in enqueued)

    def end(self) -> None:
        if self._counting:
            self._print([f"{self.accepted} enqueued, {self._duplicates} of them duplicates"])

    def _print(self, lines: Iterable[object]) -> None:
        try:
            print_lines(lines)
        except BrokenPipeError:
            # The reader of the ids has closed the pipe. Continue to enqueue.
            discard(sys.stdout)


def own_message(
    handler: str, payload: dict[str, Any], options: dict[str, Any], own_defaults: OwnDefaults
) -> NewMessage:
    """A message with its handler's queue and rate, changed by the hooks, encoded by the application's codec. If
    ``options`` give a queue, no module is imported, and the message is sent as it is. If its payload is encoded
    already, it gets no rate, and no hook is called."""
    if options.get("queue") is not None:
        return new_message(handler, payload, **options)._replace(encoded=is_encoded(payload))
    own_defaults.warn_without_handlers()
    defaults = own_defaults.of(handler)
    message = new_message(handler, payload, **options | {"queue": defaults.queue})
    if is_encoded(payload):
        return message._replace(encoded=True)
    known, message = own_defaults.checked(handler, payload, message.retry), defaults.rated(message)
    if known is None:
        return message
    if known.hooks.before_enqueue:
        with refusing("before_enqueue", handler, "a hook"):
            message = drafted(message, known.hooks.before_enqueue)
    if (codec := known.definition.codec) is None:
        return message
    with refusing("codec", handler, "encode"):
        return coded(message, codec)


def line_message(line: bytes, own_defaults: OwnDefaults) -> NewMessage:
    try:
        entry = parse_object("message", line.decode().strip())
    except UnicodeDecodeError as error:
        raise BadData("not UTF-8", error.reason, "write it as UTF-8") from None
    unknown = [name for name in entry if name not in JSON_KEYS]
    if unknown:
        fix = NO_CALLBACKS if unknown[0] in CALLBACKS else suggestion(unknown[0], JSON_KEYS)
        raise BadData("unknown key", unknown[0], fix)
    if not isinstance(entry.get("handler"), str):
        raise BadData("handler", entry.get("handler"), "give one, as text")
    options = {"in_" if name == "in" else name: value for name, value in entry.items()}
    handler, payload = options.pop("handler"), options.pop("payload", {})
    try:
        if options.get("at") is not None:
            options["at"] = given_instant(options["at"])
        if options.get("in_") is not None:
            milliseconds("in", options["in_"])  # so that an error has the name of the line's key
        return own_message(handler, payload, options, own_defaults)
    except BadData:
        raise
    except (ValueError, TypeError, ConfigurationError) as error:
        raise BadData(str(error)) from None


def parse_object(what: str, text: str) -> dict[str, Any]:
    """The JSON object in ``text``, else BadData. The error suggests a correction, or names line and column."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        meant = _meant(text)
        example = shlex.quote(json.dumps(meant or {"name": "Ada"}, ensure_ascii=False))
        at = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno} column {error.colno}"
        is_object = text.startswith("{") and "=" not in text
        fix = f"{error.msg}, at {at}" if is_object and meant is None else f"write {example}"
        raise BadData(f"{what} is not JSON", text or "empty", fix) from None
    except (RecursionError, ValueError) as error:
        raise BadData(f"{what} is not JSON", text, str(error)) from None
    if not isinstance(value, dict):
        raise BadData(what, text, 'must be a JSON object, as in \'{"name": "Ada"}\'')
    return value


def _meant(text: str) -> dict[str, Any] | None:
    """The object that a wrong text probably means: ``to=a``, or Python's or YAML's quotes. None if unclear."""
    if len(text) > LONGEST_EXAMPLE:
        return None
    name, given, pair = text.partition("=")
    if given and name.isidentifier():
        return {name: pair}
    try:
        value = json.loads(WORDS.sub(_as_json, text))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _as_json(word: re.Match[str]) -> str:
    bare = PYTHONS.get(word[0], word[0])
    is_json = word["json"] is not None or re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?|true|false|null", bare)
    return bare if is_json else json.dumps(bare if word["quoted"] is None else word["quoted"], ensure_ascii=False)


def opened_lines(source: str) -> BinaryIO:
    if source == "-":
        refuse_closed_input()
    try:
        return click.open_file(source, "rb")  # type: ignore[return-value]  # opened as bytes
    except OSError as error:
        raise BadData("--ndjson", source, f"cannot be read: {error.strerror}") from None


def size_of(file: BinaryIO) -> int | None:
    """The size of a file in bytes. None for a pipe."""
    found = os.fstat(file.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def refuse_closed_input() -> None:
    if sys.stdin is None:
        raise BadData("standard input", None, "is closed: redirect it from a file, or a pipe")


def enqueue_batch(source: str, batch_id: str, callbacks: Mapping[str, str | None]) -> Enqueued:
    """Enqueue the lines of ``source`` as the members of a batch, and close it. ``callbacks``: ``HANDLER`` or
    ``HANDLER=PAYLOAD``, by ``then``, ``failed`` and ``ended``. The result is a duplicate if the batch was closed
    before. After an error the batch stays open. The error says which line is refused, and how to continue."""
    own_defaults = OwnDefaults(current_settings())
    given = {name: None if text is None else _callback(name, text, own_defaults) for name, text in callbacks.items()}
    asked = click.get_current_context().find_root().params
    calls = AppCalls(asked["config"], asked["store"], asked["namespace"], COMMAND_BUDGET)
    calls.beside = lambda: None  # use the configuration of the current directory; hooks are called for each line
    batch = OpenBatch(calls, new_batch(batch_id, given["then"], given["failed"], given["ended"], None))
    lift()
    with opened_lines(source) as file, telling_when_interrupted(lambda: f"batch {batch_id} is open: {GO_ON}"):
        try:
            with batch:
                for message in () if batch.duplicate else _members(file, batch_id, own_defaults):
                    batch.add(message)
        except (StoreUnreachable, QueueFull) as error:
            kind = QueueFull if isinstance(error, QueueFull) else StoreUnreachable
            raise kind(f"{error}; batch {batch_id} is not closed: {GO_ON}") from None
    return Enqueued(batch_id, batch.duplicate)


def _callback(name: str, text: str, own_defaults: OwnDefaults) -> NewMessage:
    handler, _, payload = text.partition("=")
    with retelling(BadData, BadData, f"--{name}: "):
        own_defaults.function(handler, BY_CONFIGURATION)
        return own_message(handler, parse_object("payload", payload) if payload else {}, {}, own_defaults)


def _members(file: BinaryIO, batch_id: str, own_defaults: OwnDefaults) -> Iterator[NewMessage]:
    """The messages of the lines, with a progress bar. BadData for a refused line."""
    with progress_bar(size := size_of(file), shown=True) as bar:
        for part in _parts(enumerate(file, 1)):
            for number, line in part:
                if line.strip():
                    try:
                        message = line_message(line, own_defaults)
                        with retelling(UsageError, BadData):
                            refuse_own_identity(message, "a member of a batch")
                    except BadData as error:
                        fix = f"batch {batch_id} is open: correct the line, and {GO_ON}"
                        raise BadData(f"line {number}: {error}; {fix}") from None
                    yield message
            bar.update(len(part) if size is None else file.tell() - bar.pos)
