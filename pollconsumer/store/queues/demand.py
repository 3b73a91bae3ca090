"""Launches on demand: a producer has a launch started if no launch serves its queue.

While a launch serves a queue, the queue has a key ``presence``, for which producers look in the round trip that
enqueues. At its end a launch removes the key, releases its lease, and only then looks a last time for ready messages.
So it sees each message enqueued before that look, even if the launch started for the message has found the lease held
and has left. For a later message, the producer starts a launch that finds the lease free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys

ONE_WITHIN_MS = 10_000
"""Milliseconds within which producers start only one launch of a configuration, unless a launch has begun since."""


def wanted_by(keys: Keys, configured: Sequence[str]) -> str:
    """The key that records that a producer has started a launch. ``configured``: the queues in the configuration.
    Launches and producers with the same queues share the key, on all hosts."""
    return keys.control("wanted") + ":" + ",".join(sorted(configured))


class LaunchDemand:
    """Calls ``start_launch`` if no launch serves a producer's queue. A launch serves all queues of the configuration,
    so one is started for all of them."""

    def __init__(self, keys: Keys, configured: Sequence[str], start_launch: Callable[[], None]) -> None:
        self._keys, self._wanted, self._start_launch = keys, wanted_by(keys, configured), start_launch

    def looks(self, messages: Iterable[NewMessage]) -> list[Command]:
        """Commands, sent with ``messages``, that ask whether queues are served; none for messages with a due time."""
        queues = dict.fromkeys(each.queue for each in messages if each.due is None and each.delay is None)
        return [("EXISTS", *(self._keys.queue(queue, name) for name in ("presence", "paused"))) for queue in queues]

    def ensure_launch(self, wire: Wire, answers: Sequence[int]) -> None:
        """Start a launch if ``answers``, to the commands of `looks`, say that a queue is neither served nor paused, and
        no producer has just started a launch. Errors of the store are ignored."""
        with suppress(PollConsumerError):
            # GUARD one launch for all who find nobody
            if not all(answers) and wire.command("SET", self._wanted, 1, "NX", "PX", ONE_WITHIN_MS) is not None:
                self._start_launch()


class ServingMarker:
    """The keys that tell producers that a launch serves its queues."""

    def __init__(self, wire: Wire, keys: Keys, queues: Sequence[str], configured: Sequence[str]) -> None:
        self._wire, self._keys, self._queues = wire, keys, queues
        self._wanted = wanted_by(keys, configured)

    def begin(self, seconds: float) -> None:
        """Set the keys, which expire after ``seconds``. Forget that a producer has started a launch."""
        lasts_ms = int(seconds * 1000)
        markers = [self._wire.mark(self._keys.queue(queue, "presence"), lasts_ms) for queue in self._queues]
        self._wire.all([*markers, ("DEL", self._wanted)])

    def end(self) -> None:
        """Remove the keys."""
        self._wire.all([("DEL", self._keys.queue(queue, "presence")) for queue in self._queues])

    def left(self) -> tuple[bool, bool]:
        """Whether a queue has ready messages; and whether a producer has started a launch since `end`. Call it after
        `Leases.release`."""
        names = ("ready", "ready_by_priority")
        looks = [("EXISTS", *(self._keys.queue(queue, name) for name in names)) for queue in self._queues]
        wanted, *ready = self._wire.all([("EXISTS", self._wanted), *looks])
        return any(ready), bool(wanted)
