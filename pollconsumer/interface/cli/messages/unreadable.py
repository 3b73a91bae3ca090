"""What no launch could read, and has kept for a person: entries of outboxes, files of the spool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pollconsumer.core.errors import PermissionDenied, UsageError
from pollconsumer.core.notation.text import counted
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.messages.chosen import report_counts
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_table, printed_as_json
from pollconsumer.store.queues.outbox_entry import read_entry
from pollconsumer.store.records.id_text import id_text
from pollconsumer.store.rights import OPERATOR, demand
from pollconsumer.store.store import Store

SHOWN = 160
"""Characters of a content."""


class Quarantined(NamedTuple):
    """``place``: the key, or the file."""

    place: str
    reason: str
    content: str


class Quarantine:
    def __init__(self, store: Store) -> None:
        self._wire = store.wire
        self._keys = {store.keys.queue(queue, "quarantine"): queue for queue in store.inspector.queues()}

    def entries(self) -> Iterator[Quarantined]:
        for key, queue in self._keys.items():
            for stored in self._wire.command("LRANGE", key, 0, -1):
                entry = read_entry(queue, stored)
                reason = "a newer version can read it" if entry is None else entry.problem or "it can be read now"
                yield Quarantined(key, reason, id_text(stored[:SHOWN]))

    def remove(self) -> int:
        """Forget all entries. Returns how many these were."""
        removed = 0
        for key in self._keys:
            demand(self._wire, OPERATOR, key)
            count, _ = self._wire.all([("LLEN", key), ("DEL", key)])
            removed += count
        return removed


def print_unreadable() -> None:
    """Print what is kept."""
    found = [*Quarantine(opened()).entries(), *_files()]
    if not printed_as_json(each._asdict() for each in found):
        print_table(Quarantined._fields, found)


def purge_unreadable(*, yes: bool) -> None:
    """Forget what is kept. UsageError without ``yes``."""
    quarantine, files = Quarantine(opened()), [*_files()]
    if not yes:
        count = len([*quarantine.entries()]) + len(files)
        raise UsageError("nothing purged", f"{counted(count, 'unreadable message')} would be purged", "give --yes")
    removed = quarantine.remove()
    for each in files:
        _remove(Path(each.place))
    report_counts("purged", removed + len(files), [], "")


def _files() -> Iterator[Quarantined]:
    settings = current_settings()
    if settings.spool is None:
        return
    from pollconsumer.interface.configured_store import spool_of  # few settings name one

    for path, content, unreadable in spool_of(settings).refused():
        entry = read_entry("", content)
        reason = unreadable or (entry and entry.problem) or "a launch could not enqueue it"
        yield Quarantined(str(path), reason, id_text(content[:SHOWN]))


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise PermissionDenied("cannot remove", file, error.strerror or str(error)) from None
