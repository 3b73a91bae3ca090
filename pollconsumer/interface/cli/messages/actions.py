"""Commands that act on waiting messages, queues and handlers: ``pollconsumer cancel``, ``reschedule``, ``rerun``,
``signal``, ``queue`` and ``handler``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from pollconsumer.core.errors import BadData, ConfigurationError, NotFound, PollConsumerError, UsageError, suggestion
from pollconsumer.core.json_values import parse
from pollconsumer.core.notation.instants import ceil_ms
from pollconsumer.core.notation.text import counted
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.installation.status import as_object, queues_table
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import (
    is_terminal,
    print_line,
    print_notice,
    printed_as_json,
    progress_bar,
    telling_when_interrupted,
    wants_json,
)
from pollconsumer.interface.cli.types import (
    DUE_TIME,
    JSON_ARRAY,
    JSON_OBJECT,
    QUEUE_NAME,
    Duration,
    json_option,
    label_options,
    option,
    priority_option,
)
from pollconsumer.interface.logs.logs import log, write_error
from pollconsumer.runtime.new_messages import LONGEST_DELAY
from pollconsumer.store.actions import MAX_PAGE_IDS, EachPage
from pollconsumer.store.reading.inspector import Chosen, Selection, dead_letters, unreserved
from pollconsumer.store.reading.messages import by_queue
from pollconsumer.store.server import known_queues

MANY = 1000
"""If more messages are acted on, a progress bar is shown."""
SELECTING = "--handler, --key, --recurrence, --header or --created-by"
WHY_LEFT = "already taken by a launch, or ended"
QUEUE_OR_ALL = click.argument("name", type=QUEUE_NAME, required=False)
ALL_QUEUES = click.option("--all", "every", is_flag=True, help="All queues.")


def each_queue(what: str, *acts: tuple[Chosen, Callable[[str, list[str], EachPage], list[str]]]) -> list[str]:
    """Call the function of each act with the ids of its selection, queue by queue, with a progress bar if they are
    many. Returns the ids that were acted on. ``what``: the outcome, such as ``cancelled``."""
    done: list[str] = []
    count = sum(len(chosen) for chosen, _ in acts)
    with (
        telling_when_interrupted(
            lambda: f"{len(done)} of {count} {what}, and perhaps some of the next {MAX_PAGE_IDS}", lost=True
        ),
        progress_bar(count, shown=count > MANY) as bar,
    ):

        def each_page(asked: int, part: list[str]) -> None:
            done.extend(part)
            bar.update(asked)

        for chosen, act in acts:
            for queue, ids in by_queue(chosen).items():
                act(queue, ids, each_page)
    return done


def report(what: str, done: Sequence[str], asked: Chosen, why_left: str) -> None:
    """Print how many of the messages ``asked`` were acted on (``done``), and which were not, and why."""
    report_counts(what, len(done), sorted({message_id for _, message_id in asked} - set(done)), why_left)


def report_counts(what: str, count: int, left: Sequence[str], why_left: str) -> None:
    """`report`, given the number of messages that were acted on, and the ids of those ``left``."""
    printed: dict[str, Any] = {what: count, "left": left}
    if not printed_as_json(printed):
        print_line(f"{count} {what}" + (f", {len(left)} left: {why_left}" if left else ""))


def would(what: str, count: int, unit: str = "message") -> None:
    """Print how many messages (or another ``unit``) the command would act on with ``--yes``."""
    if not printed_as_json({f"would_be_{what}": count}):
        print_line(f"{counted(count, unit)} would be {what}; give --yes")


@click.command(epilog="pollconsumer cancel ID\npollconsumer cancel --handler mail.send --yes")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@option("--queue", "Messages of this queue. With an id: the queue of that message.", QUEUE_NAME)
@option("--handler", "Messages of this handler.")
@option("--key", "Messages with this unique key: one of each handler and queue at most.")
@option("--recurrence", "Occurrences of this recurrence.")
@label_options("Messages")
@click.option(
    "--running", is_flag=True, help="With ids only: also stop running handlers. Ask them, and interrupt them 5s later."
)
@click.option(
    "--yes", is_flag=True, help="Cancel what options select; without --yes they only count. Ids need no --yes."
)
@json_option("Without ids: print one JSON object.")
def cancel(
    ids: tuple[str, ...],
    queue: str | None,
    handler: str | None,
    key: str | None,
    recurrence: str | None,
    headers: dict[str, str] | None,
    running: bool,
    yes: bool,
) -> None:
    """Cancel messages that are scheduled or ready.

    Give ids, or options. Options select the messages that match all of them; without --yes these are only counted. With
    ids, --running also stops running handlers; 'status ID' shows how such a message ended."""
    if ids:
        if handler or key or recurrence or headers:
            raise UsageError("ids and a selection", None, f"give ids, or {SELECTING}")
        store = opened()
        act = store.actions.stop if running else store.actions.cancel
        _act_on_each(ids, lambda each: act(store.inspector.message(each, queue).queue, each))
        return
    if running:
        raise UsageError("--running", "no id", "give the ids of the messages to stop")
    if not any((queue, handler, key, recurrence, headers)):
        raise UsageError("no messages chosen", None, f"give ids, or --queue, {SELECTING}")
    selection = Selection(queue=queue, handler=handler, key=key, recurrence=recurrence, headers=headers)
    store = opened()
    asked = unreserved(store.selector, selection)
    if yes:
        done = each_queue("cancelled", (asked, store.actions.cancel_all))
        report("cancelled", done, asked, WHY_LEFT)
    else:
        would("cancelled", len(asked))


def _act_on_each(ids: tuple[str, ...], act: Callable[[str], None]) -> None:
    """Call ``act`` for each id, even after BadData or NotFound. The last such error is raised, others are printed."""
    refused: PollConsumerError | None = None
    asked = 0
    with telling_when_interrupted(lambda: f"{asked} of {len(ids)} done, and perhaps the next one"):
        for message_id in ids:
            try:
                act(message_id)
            except (BadData, NotFound) as error:
                if refused is not None:
                    write_error(refused)
                refused = error
            asked += 1
    if refused is not None:
        raise refused


@click.command(epilog="pollconsumer reschedule ID --in 1h\npollconsumer reschedule ID --priority -10")
@click.argument("message_id", metavar="ID")
@option("--in", "Handle it after this time.", Duration(most=LONGEST_DELAY), name="in_")
@option("--at", "Handle it at this time, ISO 8601 with an offset or Z.", DUE_TIME)
@priority_option()
@option("--payload", "New payload. - reads it from standard input.", metavar="JSON")
@option("--queue", "Queue of the message, if two queues have its id.", QUEUE_NAME)
def reschedule(
    message_id: str,
    in_: float | None,
    at: int | None,
    priority: int | None,
    payload: str | None,
    queue: str | None,
) -> None:
    """Change due time, priority or payload of a message that is scheduled or ready. A due time in the past is now."""
    if in_ is not None and at is not None:
        raise UsageError("--in and --at", None, "give one of the two")
    if (in_, at, priority, payload) == (None, None, None, None):
        raise UsageError("nothing to change", None, "give --in or --at, --priority or --payload")
    store = opened()
    message, encoded = store.inspector.message(message_id, queue), b""
    if payload is not None:
        from pollconsumer.interface.cli.messages.enqueue import checked_payload  # it imports the API

        encoded = checked_payload(message.handler, payload)
    store.actions.change(
        message.queue,
        message_id,
        due=at,
        delay=None if in_ is None else ceil_ms(in_),
        priority=priority,
        payload=encoded,
    )


@click.command(epilog="pollconsumer rerun ID")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@option("--queue", "Queue of the messages, if two queues have an id.", QUEUE_NAME)
@JSON_ARRAY
def rerun(ids: tuple[str, ...], queue: str | None) -> None:
    """Run messages that have ended once more, and print the ids of the new messages.

    Each is a new message with the same handler, payload and options. It is due now, and its created_by names the one
    that it repeats. A dead letter stays: 'dead redrive' returns it to its queue instead, with its id."""
    store = opened()
    made: list[dict[str, str]] = []

    def act(message_id: str) -> None:
        having = store.inspector.message(message_id, queue).queue
        new = store.rerun(having, message_id)
        made.append({"id": new, "queue": having, "rerun_of": message_id})
        if not wants_json():
            print_line(new)

    try:
        _act_on_each(ids, act)
    finally:
        if made:
            printed_as_json(made)


@click.command(epilog='pollconsumer signal ID approved \'{"by":"admin"}\'')
@click.argument("message_id", metavar="ID")
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="[VALUE]", default="true")
@option("--queue", "Queue of the message, if two queues have its id.", QUEUE_NAME)
def signal(message_id: str, name: str, value: str, queue: str | None) -> None:
    """Send the signal NAME with VALUE to a message whose handler waits for it.

    VALUE is JSON. Default: true. A signal sent before the handler waits is kept. A second signal of the same name with
    another value is refused."""
    try:
        given = parse(value)
    except (ValueError, RecursionError):
        raise BadData("VALUE", value, 'JSON, as in true or \'{"by":"admin"}\'') from None
    store = opened()
    message = store.inspector.message(message_id, queue)
    awaited = store.inspector.recorded(message)[1].awaited
    if not store.actions.signal(message.queue, message_id, name, given):
        raise BadData("signal sent before", name, "the first value counts; use another name")
    if awaited != name and is_terminal(sys.stderr):
        waits = f"waits for {awaited}" if awaited else "waits for no signal"
        print_notice(f"{message_id} {waits} now; {name} is kept until it asks")


@click.group()
def queue() -> None:
    """List, pause, resume or empty queues."""


@queue.command(name="list", epilog="pollconsumer queue list")
@JSON_ARRAY
def list_queues() -> None:
    """List queues, with the number of messages in each state."""
    queues = opened().inspector.overview().queues
    if not printed_as_json([as_object(each) for each in queues]):
        queues_table(queues)


def _pause(name: str | None, *, every: bool, paused: bool, lasts_ms: int = 0) -> list[str]:
    """Pause or resume a queue, or all existing queues. Returns the names of all queues that existed before."""
    if (name is None) != every:
        raise UsageError("queues", name, "give the name of one, or --all")
    store = opened()
    known = known_queues(store.wire, store.keys)
    for each in known if name is None else [name]:
        store.actions.pause(each, paused=paused, lasts_ms=lasts_ms)
    return known


@queue.command(name="pause", epilog="pollconsumer queue pause mail --for 2h\npollconsumer queue pause --all")
@QUEUE_OR_ALL
@ALL_QUEUES
@option("--for", "End the pause after this time.", Duration(positive=True), name="lasts")
def pause_queue(name: str | None, every: bool, lasts: float | None) -> None:
    """Pause a queue: its messages wait until it is resumed.

    Running handlers go on. For a queue that is paused already, --for changes when the pause ends. --all leaves out
    queues that get their first message later."""
    known = _pause(name, every=every, paused=True, lasts_ms=0 if lasts is None else ceil_ms(lasts))
    if name is not None and name not in known:
        others = f"queues are: {', '.join(known) or 'none yet'}"
        log.warning("queue %s: paused before its first message; %s", name, suggestion(name, known, others))


@queue.command(name="resume", epilog="pollconsumer queue resume mail\npollconsumer queue resume --all")
@QUEUE_OR_ALL
@ALL_QUEUES
def resume_queue(name: str | None, every: bool) -> None:
    """Resume a paused queue."""
    _pause(name, every=every, paused=False)


@queue.command(name="purge", epilog="pollconsumer queue purge mail --yes")
@click.argument("name", type=QUEUE_NAME)
@click.option("--yes", is_flag=True, help="Purge the queue. Without --yes, only count its messages.")
@JSON_OBJECT
def purge_queue(name: str, yes: bool) -> None:
    """Empty a queue: cancel waiting messages, delete dead letters.

    Scheduled and ready messages are cancelled. Running handlers go on."""
    store = opened()
    asked = unreserved(store.selector, Selection(queue=name))
    dead = dead_letters(store.selector, Selection(queue=name))
    if yes:
        done = each_queue("purged", (asked, store.actions.cancel_all), (dead, store.actions.purge))
        report("purged", done, [*asked, *dead], WHY_LEFT)
    else:
        would("purged", len(asked) + len(dead))


@click.group()
def handler() -> None:
    """Pause a handler, or resume it. Its messages are kept meanwhile."""


@handler.command(name="pause", epilog="pollconsumer handler pause mail.send")
@click.argument("name")
def pause_handler(name: str) -> None:
    """Pause a handler: its messages are kept until it is resumed.

    This holds for all queues and for the handler's aliases, within a second. Running handlers go on."""
    from pollconsumer.interface.assembly.handlers import OwnDefaults  # it imports the API

    opened().handler_pauses.pause(name)
    try:
        OwnDefaults(current_settings()).function(name, fix="")
    except BadData as error:
        log.warning("handler %s is paused, and may be misspelt: %s", name, error)
    except ConfigurationError:
        pass  # that it cannot be imported may be the reason for the pause


@handler.command(name="resume", epilog="pollconsumer handler resume mail.send")
@click.argument("name")
def resume_handler(name: str) -> None:
    """Resume a paused handler: its messages are due at once."""
    opened().handler_pauses.resume(name)
