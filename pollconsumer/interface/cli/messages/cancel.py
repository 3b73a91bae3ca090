"""``pollconsumer cancel`` and ``reschedule``, for messages that are not reserved yet."""

from __future__ import annotations

import click

from pollconsumer.core.errors import BadData, NotFound, PollConsumerError, UsageError
from pollconsumer.core.messages.codec import encoded_json
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.notation.instants import ceil_ms
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.messages.chosen import WHY_LEFT, each_queue, report, would
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import telling_when_interrupted
from pollconsumer.interface.cli.types import (
    DUE_TIME,
    QUEUE_NAME,
    Duration,
    Once,
    header_option,
    json_option,
    priority_option,
)
from pollconsumer.interface.logs.logs import write_error
from pollconsumer.runtime.new_messages import LONGEST_DELAY
from pollconsumer.store.reading.message_selector import Selection, unreserved


@click.command(epilog="pollconsumer cancel ID\npollconsumer cancel --handler mail.send --yes")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--queue", cls=Once, type=QUEUE_NAME, help="Messages of this queue. With an id: the queue of that message."
)
@click.option("--handler", cls=Once, help="Messages of this handler.")
@click.option("--key", cls=Once, help="Messages with this unique key: one of each handler and queue at most.")
@click.option("--recurrence", cls=Once, help="Occurrences of this recurrence.")
@header_option("Messages with this header. Repeatable: all must match.")
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
    ids, --running also stops running handlers; 'status ID' shows how such a message ended.
    """
    if ids:
        if handler or key or recurrence or headers:
            raise UsageError("ids and a selection", None, "give ids, or --handler, --key, --recurrence and --header")
        _cancel_each(ids, queue, running=running)
        return
    if running:
        raise UsageError("--running", "no id", "give the ids of the messages to stop")
    if not any((queue, handler, key, recurrence, headers)):
        raise UsageError("no messages chosen", None, "give ids, or --queue, --handler, --key, --recurrence or --header")
    selection = Selection(queue=queue, handler=handler, key=key, recurrence=recurrence, headers=headers)
    store = opened()
    asked = unreserved(store.selector, selection)
    if yes:
        done = each_queue("cancelled", (asked, store.interventions.cancel_all))
        report("cancelled", done, asked, WHY_LEFT)
    else:
        would("cancelled", len(asked))


def _cancel_each(ids: tuple[str, ...], queue: str | None, *, running: bool) -> None:
    """Cancel each message that can be. The last error is raised; earlier ones are printed."""
    store = opened()
    act = store.interventions.stop if running else store.interventions.cancel
    refused: PollConsumerError | None = None
    asked = 0
    with telling_when_interrupted(lambda: f"{asked} of {len(ids)} done, and perhaps the next one"):
        for message_id in ids:
            try:
                act(store.inspector.message(message_id, queue).queue, message_id)
            except (BadData, NotFound) as error:
                if refused is not None:
                    write_error(refused)
                refused = error
            asked += 1
    if refused is not None:
        raise refused


@click.command(epilog="pollconsumer reschedule ID --in 1h\npollconsumer reschedule ID --priority -10")
@click.argument("message_id", metavar="ID")
@click.option("--in", "in_", cls=Once, type=Duration(most=LONGEST_DELAY), help="Handle it after this time.")
@click.option("--at", cls=Once, type=DUE_TIME, help="Handle it at this time, ISO 8601 with an offset or Z.")
@priority_option()
@click.option("--payload", cls=Once, metavar="JSON", help="New payload. - reads it from standard input.")
@click.option("--queue", cls=Once, type=QUEUE_NAME, help="Queue of the message, if two queues have its id.")
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
    message = store.inspector.message(message_id, queue)
    store.interventions.change(
        message.queue,
        message_id,
        due=at,
        delay=None if in_ is None else ceil_ms(in_),
        priority=priority,
        payload=b"" if payload is None else _checked(message.handler, payload),
    )


def _checked(handler: str, text: str) -> bytes:
    """What the store has of the payload in ``text``. BadData if the configuration's handler would refuse it."""
    from pollconsumer.interface.api.slips import BY_CONFIGURATION
    from pollconsumer.interface.assembly.handlers import OwnDefaults  # imported lazily: it imports modules of users
    from pollconsumer.interface.cli.messages.enqueue import payload_of

    payload = payload_of(text)
    own_defaults = OwnDefaults(current_settings())
    own_defaults.function(handler, BY_CONFIGURATION)
    own_defaults.checked(handler, payload)
    with refusing("codec", handler, "encode"):
        return encoded_json(encode_payload(payload), own_defaults.codec_of(handler))
