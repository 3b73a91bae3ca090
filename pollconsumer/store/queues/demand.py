"""Launches on demand: if nobody serves its queue, a producer has a launch started.

While a launch serves a queue, the queue has a key ``presence``. Producers look for it in the round trip that enqueues.
A launch removes the key, then releases its lease, and only then looks for the last time whether anything is ready. It
sees every message that came before this look, even if the launch that was started for the message found the lease held
and left. For a later message a launch is started that finds the lease free.
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
"""Within so many ms producers start one launch of a configuration at most, unless a launch has begun since."""


def wanted_by(keys: Keys, configured: Sequence[str]) -> str:
    """The key that records that producers have started a launch. ``configured``: the queues that the configuration
    names, if any. Launches and their producers share them on all hosts."""
    return keys.control("wanted") + ":" + ",".join(sorted(configured))


class LaunchDemand:
    """What a producer looks for, and what it does if nobody serves a queue: it calls ``start_launch``. One launch
    serves all queues of the configuration, so it is started once for all of them."""

    def __init__(self, keys: Keys, configured: Sequence[str], start_launch: Callable[[], None]) -> None:
        self._keys, self._wanted, self._start_launch = keys, wanted_by(keys, configured), start_launch

    def looks(self, messages: Iterable[NewMessage]) -> list[Command]:
        """The commands to send with ``messages``. None for messages that are due later."""
        queues = dict.fromkeys(each.queue for each in messages if each.due is None and each.delay is None)
        return [("EXISTS", *(self._keys.queue(queue, name) for name in ("presence", "paused"))) for queue in queues]

    def ensure_launch(self, wire: Wire, answers: Sequence[int]) -> None:
        """Start a launch if nobody serves one of the queues, unless the queue is paused, or a producer has started one
        already. Errors of the store are ignored, since the messages are accepted."""
        with suppress(PollConsumerError):
            # GUARD one launch for all who find nobody
            if not all(answers) and wire.command("SET", self._wanted, 1, "NX", "PX", ONE_WITHIN_MS) is not None:
                self._start_launch()


class ServingMarker:
    """The keys by which a launch reports that it serves its queues."""

    def __init__(self, wire: Wire, keys: Keys, queues: Sequence[str], configured: Sequence[str]) -> None:
        self._wire, self._keys, self._queues = wire, keys, queues
        self._wanted = wanted_by(keys, configured)

    def begin(self, seconds: float) -> None:
        """Set the keys, for ``seconds`` at most."""
        lasts_ms = int(seconds * 1000)
        markers = [("SET", self._keys.queue(queue, "presence"), 1, "PX", lasts_ms) for queue in self._queues]
        self._wire.all([*markers, ("DEL", self._wanted)])

    def end(self) -> None:
        """Remove the keys."""
        self._wire.all([("DEL", self._keys.queue(queue, "presence")) for queue in self._queues])

    def left(self) -> tuple[bool, bool]:
        """Whether anything is ready, and whether a producer has wanted a launch since `end`. Call it after
        `Leases.release`."""
        names = ("ready", "ready_by_priority")
        looks = [("EXISTS", *(self._keys.queue(queue, name) for name in names)) for queue in self._queues]
        wanted, *ready = self._wire.all([("EXISTS", self._wanted), *looks])
        return any(ready), bool(wanted)
