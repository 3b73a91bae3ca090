"""Launches on demand: a producer that finds its queue served by nobody has one started.

While a launch serves a queue, the queue's ``presence`` is there; producers look for it in the round trip that enqueues.
A launch removes it first, and only then looks for the last time whether anything is ready: so a message is seen by that
look, or its producer finds nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys

ONE_WITHIN_MS = 10_000
"""Milliseconds within which one launch is started for a queue, at most: unless one has begun to serve it since."""


class LaunchDemand:
    """What a producer looks for, and does where nobody serves a queue: it calls ``start_launch``."""

    def __init__(self, keys: Keys, start_launch: Callable[[], None]) -> None:
        self._keys, self._start_launch = keys, start_launch

    def looks(self, messages: Iterable[NewMessage]) -> list[Command]:
        """What to ask with the enqueueing of ``messages``. Nothing for those that are due later."""
        queues = dict.fromkeys(each.queue for each in messages if each.due is None and each.delay is None)
        return [
            ("EXISTS", *(self._keys.queue(queue, name) for name in ("presence", "wanted", "paused")))
            for queue in queues
        ]

    def heed(self, wire: Wire, looks: Sequence[Command], answers: Sequence[int]) -> None:
        """Have a launch started for each queue that nobody serves, unless it is paused, or a launch was wanted. Errors
        of the store are ignored: the messages are there."""
        with suppress(PollConsumerError):
            for (_, _, wanted, _), found in zip(looks, answers, strict=True):
                # GUARD one launch for all who find nobody
                if not found and wire.command("SET", wanted, 1, "NX", "PX", ONE_WITHIN_MS) is not None:
                    self._start_launch()


class Presence:
    """A launch's word that it serves its queues."""

    def __init__(self, wire: Wire, keys: Keys, queues: Sequence[str]) -> None:
        self._wire, self._keys, self._queues = wire, keys, queues

    def begin(self, seconds: float) -> None:
        """Say so, for ``seconds`` at most."""
        commands = list[Command]()
        for queue in self._queues:
            presence, wanted = (self._keys.queue(queue, name) for name in ("presence", "wanted"))
            commands += ("SET", presence, 1, "PX", int(seconds * 1000)), ("DEL", wanted)
        self._wire.all(commands)

    def end(self) -> bool:
        """Say no longer so. Returns whether anything is ready."""
        self._wire.all([("DEL", self._keys.queue(queue, "presence")) for queue in self._queues])
        names = ("ready", "ready_by_priority")
        looks = [("EXISTS", *(self._keys.queue(queue, name) for name in names)) for queue in self._queues]
        return any(self._wire.all(looks))  # GUARD after it has said so
