"""``pollconsumer recurrences add``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from pollconsumer.core.choices import After, Missed, Overlap
from pollconsumer.core.errors import BadData
from pollconsumer.core.messages.message import MAX_PRIORITY
from pollconsumer.core.notation.instants import datetime_of, read_instant
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.api.recurrences.put_options import encoded_put, new_put
from pollconsumer.interface.assembly.own_defaults import OwnDefaults
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.kinds import Text
from pollconsumer.interface.cli.messages.enqueue import payload_of
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.types import (
    CRON,
    HANDLER_NAME,
    QUEUE_NAME,
    Duration,
    Once,
    Value,
    WordType,
    header_option,
)
from pollconsumer.runtime.new_messages import Defaults
from pollconsumer.store.recurrences.recurrence_interventions import Recurrences


def _first(text: str) -> str | datetime:
    return text.lower() if text.lower() in ("now", "next") else datetime_of(read_instant(text))


def _until(text: str) -> datetime:
    return datetime_of(read_instant(text))


@click.command(epilog="pollconsumer recurrences add nightly backup --cron '30 2 * * *' --timezone Europe/Paris")
@click.argument("name")
@click.argument("handler", type=HANDLER_NAME)
@click.argument("payload", required=False)
@click.option("--every", cls=Once, type=Duration(positive=True), help="Its period.")
@click.option("--cron", cls=Once, type=CRON, help="Or a cron expression.")
@click.option("--timezone", cls=Once, help="The expression's time zone; UTC.")
@click.option(
    "--first",
    cls=Once,
    type=Value(Text("now|next|TIME", _first)),
    help="If new or with another rule, it begins at once, by its rule, or at this time; now.",
)
@click.option("--times", cls=Once, type=click.IntRange(1), help="Most occurrences.")
@click.option("--until", cls=Once, type=Value(Text("time", _until)), help="None after this time.")
@click.option("--missed", cls=Once, type=WordType(Missed), help="What becomes of missed ones; once.")
@click.option("--overlap", cls=Once, type=WordType(Overlap), help="With skip none while the last is unfinished.")
@click.option("--after", cls=Once, type=WordType(After), help="With end the period counts from the last one's end.")
@click.option("--queue", cls=Once, type=QUEUE_NAME, help="Queue of its messages; by default the handler's.")
@click.option("--priority", cls=Once, type=click.IntRange(-MAX_PRIORITY, MAX_PRIORITY), help="Smaller is sooner; 0.")
@header_option("Repeatable.")
@click.option("--created-by", cls=Once, help="Who adds it, to be listed.")
@click.option("--ping", cls=Once, metavar="URL", help="Monitor that is told how each occurrence begins and ends.")
@click.option("--disabled", is_flag=True, help="List it, and enqueue nothing.")
def add(name: str, handler: str, payload: str | None, disabled: bool, **options: Any) -> None:
    """Add a recurrence, or replace the one of that name, without any launch's configuration.

    PAYLOAD is a JSON object; - reads it from standard input. Replacing changes only what is different.
    """
    if (options["every"] is None) == (options["cron"] is None):
        raise click.UsageError("give --every or --cron, one of them")
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
    opened(Recurrences).put([put])
