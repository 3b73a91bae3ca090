"""Launches on demand: a producer that finds its queue served by nobody has one started.

While a launch serves a queue, the queue's ``presence`` is there; producers look for it in the round trip that enqueues.
A launch removes it, then releases its lease, and only then looks for the last time whether anything is ready. A message
that comes before this look is seen by it, even if the launch that was started for the message has met the lease and
left. A message that comes later has a launch started that finds the lease free.
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
"""Milliseconds within which producers start one launch of a configuration at most: unless one has begun since."""


def wanted_by(keys: Keys, configured: Sequence[str]) -> str:
    """The key of a launch that producers have started. ``configured``: the queues of the configuration, none if it
    names none; a launch and its producers have them in common on all hosts."""
    return keys.control("wanted") + ":" + ",".join(sorted(configured))


class LaunchDemand:
    """What a producer looks for, and does where nobody serves a queue: it calls ``start_launch``. One launch serves all
    queues of the configuration, so there is one start for all of them."""

    def __init__(self, keys: Keys, configured: Sequence[str], start_launch: Callable[[], None]) -> None:
        self._keys, self._wanted, self._start_launch = keys, wanted_by(keys, configured), start_launch

    def looks(self, messages: Iterable[NewMessage]) -> list[Command]:
        """What to ask with the enqueueing of ``messages``. Nothing for those that are due later."""
        queues = dict.fromkeys(each.queue for each in messages if each.due is None and each.delay is None)
        return [("EXISTS", *(self._keys.queue(queue, name) for name in ("presence", "paused"))) for queue in queues]

    def ensure_launch(self, wire: Wire, answers: Sequence[int]) -> None:
        """Have a launch started if nobody serves one of the queues, unless that is paused, or a launch was wanted.
        Errors of the store are ignored: the messages are there."""
        with suppress(PollConsumerError):
            # GUARD one launch for all who find nobody
            if not all(answers) and wire.command("SET", self._wanted, 1, "NX", "PX", ONE_WITHIN_MS) is not None:
                self._start_launch()


class ServingMarker:
    """A launch's word that it serves its queues."""

    def __init__(self, wire: Wire, keys: Keys, queues: Sequence[str], configured: Sequence[str]) -> None:
        self._wire, self._keys, self._queues = wire, keys, queues
        self._wanted = wanted_by(keys, configured)

    def begin(self, seconds: float) -> None:
        """Say so, for ``seconds`` at most."""
        lasts_ms = int(seconds * 1000)
        markers = [("SET", self._keys.queue(queue, "presence"), 1, "PX", lasts_ms) for queue in self._queues]
        self._wire.all([*markers, ("DEL", self._wanted)])

    def end(self) -> None:
        """Say no longer so."""
        self._wire.all([("DEL", self._keys.queue(queue, "presence")) for queue in self._queues])

    def left(self) -> tuple[bool, bool]:
        """Whether anything is ready, and whether a producer has wanted a launch since `end`. To be asked once the lease
        is released."""
        names = ("ready", "ready_by_priority")
        looks = [("EXISTS", *(self._keys.queue(queue, name) for name in names)) for queue in self._queues]
        wanted, *ready = self._wire.all([("EXISTS", self._wanted), *looks])
        return any(ready), bool(wanted)
