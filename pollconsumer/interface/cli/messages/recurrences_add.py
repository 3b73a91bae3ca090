"""``pollconsumer recurrences add``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from pollconsumer.core.choices import After, Missed, Overlap
from pollconsumer.core.errors import BadData
from pollconsumer.core.notation.instants import datetime_of, read_instant
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.api.recurrences import encoded_put, new_put
from pollconsumer.interface.assembly.handlers import OwnDefaults
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.messages.enqueue import payload_of
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.types import (
    CRON,
    QUEUE_NAME,
    Duration,
    Once,
    Value,
    WordType,
    header_option,
    priority_option,
)
from pollconsumer.runtime.new_messages import Defaults


def _first(text: str) -> str | datetime:
    return text.lower() if text.lower() in ("now", "next") else datetime_of(read_instant(text))


def _until(text: str) -> datetime:
    return datetime_of(read_instant(text))


@click.command(epilog="pollconsumer recurrences add nightly backup --cron '30 2 * * *' --timezone Europe/Paris")
@click.argument("name")
@click.argument("handler")
@click.argument("payload", required=False)
@click.option("--every", cls=Once, type=Duration(positive=True), help="Time between occurrences, as 5m.")
@click.option("--cron", cls=Once, type=CRON, help="Cron expression, instead of --every.")
@click.option("--timezone", cls=Once, help="Time zone of the cron expression. Default: UTC.")
@click.option(
    "--first",
    cls=Once,
    type=Value("now|next|TIME", _first),
    help="First run of a new or changed recurrence: now, next (by its rule), or a time. Default: now.",
)
@click.option("--times", cls=Once, type=click.IntRange(1), help="Stop after this many occurrences.")
@click.option("--until", cls=Once, type=Value("time", _until), help="Enqueue nothing after this time.")
@click.option(
    "--missed",
    cls=Once,
    type=WordType(Missed),
    help="Occurrences that were missed: skip, run the last once, or all. Default: once.",
)
@click.option(
    "--overlap", cls=Once, type=WordType(Overlap), help="skip: none while the last one is unfinished. Default: allow."
)
@click.option(
    "--after", cls=Once, type=WordType(After), help="end: count --every from the end of the last one. Default: due."
)
@click.option("--queue", cls=Once, type=QUEUE_NAME, help="Queue of its messages. Default: the handler's.")
@priority_option(" Default: 0.")
@header_option("Add a header to its messages. Repeatable.")
@click.option("--created-by", cls=Once, help="Who added it, as shown by 'recurrences list'.")
@click.option("--ping", cls=Once, metavar="URL", help="Monitor URL to call when an occurrence starts and ends.")
@click.option(
    "--disabled",
    is_flag=True,
    help="Add it switched off: it enqueues nothing until it is added again without --disabled.",
)
def add(name: str, handler: str, payload: str | None, disabled: bool, **options: Any) -> None:
    """Add a recurrence, or change the one of that name.

    It is stored, not written into config.toml. PAYLOAD is a JSON object; - reads it from standard input.
    """
    if (options["every"] is None) == (options["cron"] is None):
        raise click.UsageError("give either --every or --cron")
    own_defaults = OwnDefaults(current_settings())
    registered, defaults = None, Defaults()
    if options["queue"] is None:
        registered, defaults = own_defaults.function(handler), own_defaults.of(handler)
    options |= {"handler": handler, "payload": payload_of(payload), "enabled": not disabled}
    try:
        put = new_put(name, registered, defaults, **options)
    except TypeError as error:
        raise BadData(str(error)) from None
    codec = None if registered is None else registered.definition.codec
    with refusing("codec", handler, "encode"):
        put = encoded_put(put, codec)
    opened().recurrences.put([put])
