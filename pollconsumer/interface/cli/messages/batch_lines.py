"""Lines of a file as the members of a batch: ``pollconsumer enqueue --ndjson FILE --batch ID``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import BinaryIO, NamedTuple

import click

from pollconsumer.core.errors import BadData, StoreUnreachable, UsageError
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.interface.api.batches import OpenBatch
from pollconsumer.interface.api.slips import BY_CONFIGURATION
from pollconsumer.interface.api.store_calls import StoreCalls
from pollconsumer.interface.assembly.handlers import OwnDefaults
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.messages.enqueue import (
    BULK,
    line_message,
    opened_lines,
    own_message,
    parse_object,
    size_of,
)
from pollconsumer.interface.cli.opened import COMMAND_BUDGET
from pollconsumer.interface.cli.output import progress_bar, telling_when_interrupted
from pollconsumer.runtime.handling.batch_in_hand import new_batch
from pollconsumer.runtime.new_messages import refuse_own_identity
from pollconsumer.runtime.system.watchdog import lift
from pollconsumer.store.queues.producer import Enqueued

GO_ON = "repeat the command with all lines within an hour: lines that are members already are not added twice"


class _Prepared(NamedTuple):
    """A message that is made already, as a member or a callback."""

    message: NewMessage

    def __message__(self) -> NewMessage:
        return self.message


def enqueue_batch(source: str, batch_id: str, callbacks: Mapping[str, str | None]) -> Enqueued:
    """Enqueue the lines of ``source`` as the members of a batch, and close it. ``callbacks``: ``HANDLER`` or
    ``HANDLER=PAYLOAD`` by ``then``, ``failed`` and ``ended``. The batch is a duplicate if it is closed already. After
    an error it is open: the error says which line is refused, and how to go on."""
    own_defaults = OwnDefaults(current_settings())
    given = {
        name: None if text is None else _Prepared(_callback(name, text, own_defaults))
        for name, text in callbacks.items()
    }
    batch = OpenBatch(_calls(), new_batch(batch_id, given["then"], given["failed"], given["ended"], None))
    lift()
    with opened_lines(source) as file, telling_when_interrupted(lambda: f"batch {batch_id} is open: {GO_ON}"):
        try:
            with batch:
                for message in () if batch.duplicate else _members(file, batch_id, own_defaults):
                    batch.add(_Prepared(message))
        except StoreUnreachable as error:
            raise StoreUnreachable(f"{error}; batch {batch_id} is not closed: {GO_ON}") from None
    return Enqueued(batch_id, batch.duplicate)


def _calls() -> StoreCalls:
    """The store of the command, whose configuration is searched for from the current directory, as by each command. A
    line's hooks are called as it is read."""
    given = click.get_current_context().find_root().params
    calls = StoreCalls(given["config"], given["store"], given["namespace"], COMMAND_BUDGET)
    calls.beside = lambda: None
    return calls


def _callback(name: str, text: str, own_defaults: OwnDefaults) -> NewMessage:
    handler, _, payload = text.partition("=")
    try:
        own_defaults.function(handler, BY_CONFIGURATION)
        return own_message(handler, parse_object("payload", payload) if payload else {}, {}, own_defaults)
    except BadData as error:
        raise BadData(f"--{name}: {error}") from None


def _members(file: BinaryIO, batch_id: str, own_defaults: OwnDefaults) -> Iterator[NewMessage]:
    """The messages of the lines, with a progress bar. BadData for a line that is refused."""
    with progress_bar(size := size_of(file), shown=True) as bar:
        lines = enumerate(file, 1)
        while part := [*islice(lines, BULK)]:
            for number, line in part:
                if line.strip():
                    try:
                        yield _member(line, own_defaults)
                    except BadData as error:
                        fix = f"batch {batch_id} is open: correct the line, and {GO_ON}"
                        raise BadData(f"line {number}: {error}; {fix}") from None
            bar.update(len(part) if size is None else file.tell() - bar.pos)


def _member(line: bytes, own_defaults: OwnDefaults) -> NewMessage:
    message = line_message(line, own_defaults)
    try:
        refuse_own_identity(message, "a member of a batch")
    except UsageError as error:
        raise BadData(str(error)) from None
    return message
