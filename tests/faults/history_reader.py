"""Reads what happened to an installation: from what it recorded, and from its store as it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import store_view
from tests.faults.history import History, read_executions, read_operations
from tests.faults.installation import NAMESPACE

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire
    from tests.trials.place import Place


def read_history(place: Place, wire: Wire) -> History:
    """Every command must have ended. ``wire``: to the store, straight."""
    strays = [f"{pid}: {' '.join(words)}" for pid, words in place.processes()]
    return History(
        executions=read_executions(place.directory / "executions.jsonl"),
        operations=read_operations(sorted(place.directory.glob("operations.*.jsonl"))),
        stored=store_view.stored(wire, NAMESPACE),
        queues=store_view.queues(wire, NAMESPACE),
        commands=[command.ran() for command in place.commands],
        recurrences=store_view.recurrences(wire, NAMESPACE),
        leases=store_view.leases(wire, NAMESPACE),
        strays=strays,
    )
