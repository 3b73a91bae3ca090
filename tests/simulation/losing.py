"""A server that is killed, and comes back without what it was told last: its log is written each second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pollconsumer.store.keyspace import Keys
from tests.simulation.installation import NAMESPACE
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pollconsumer.store.client.wire import Wire
    from tests.simulation.installation import Installation

OF_ONE_MESSAGE = ("records", "rows", "checkpoints")
"""Hashes of what a message consists of, by id."""
OF_ONE_BATCH = ("batches", "batch_members", "batch_callbacks")


class Unwritten:
    """What the server is told from now on is lost at its next death."""

    def __init__(self, installation: Installation, wire: Wire) -> None:
        self._installation, self._wire = installation, wire
        self._written, self._content = installation.server.store.copied(), snapshot(wire)
        self._since = installation.now_us()

    def lose(self) -> None:
        """The server is killed. What a message was lost of is recorded, and no promise holds for that one.

        A person notices that a queue or a handler is paused no more, or again: such a one is left as it is. A launch
        whose lease was lost with it trusts this until its next renewal, as if somebody had broken it.
        """
        installation, server = self._installation, self._installation.server
        now, handlers = snapshot(self._wire), Keys(NAMESPACE).control("paused_handlers")
        keys = [Keys(NAMESPACE).queue(queue, "paused") for queue in installation.queues]
        paused = {key: (now.get(key), server.store.execute(("PTTL", key))) for key in keys}
        installation.history.undone |= changed(installation.queues, self._content, now)
        installation.history.miscounted |= changed_batches(installation.queues, self._content, now)
        installation.broken_at = installation.world.now
        server.stop()
        server.store.restore(self._written)
        for key, (since, lasts_ms) in paused.items():
            server.store.execute(("DEL", key) if since is None else ("SET", key, since))
            server.store.execute(("PEXPIRE", key, lasts_ms) if lasts_ms > 0 else ("PERSIST", key))
        server.store.execute(("DEL", handlers))
        for handler, since in now.get(handlers, {}).items():
            server.store.execute(("HSET", handlers, handler, since))


def changed(queues: Sequence[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Queue and id of each message that is not as it was, or was not there, or is there no more."""
    return {(queue, name) for queue in queues for name in _changed(queue, OF_ONE_MESSAGE, before, now)}


def changed_batches(queues: Sequence[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    return {name for queue in queues for name in _changed(queue, OF_ONE_BATCH, before, now)}


def _changed(queue: str, hashes: Sequence[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in hashes:
        key = Keys(NAMESPACE).queue(queue, name)
        for field, _ in before.get(key, {}).items() ^ now.get(key, {}).items():
            yield field.decode().partition("\n")[0]
