"""The mover within a test's process, in virtual time: it does what is due at an instant, and tells of the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

from pollconsumer.core.news.events import Event
from pollconsumer.interface.assembly.launch_roles import MOVER
from pollconsumer.interface.testing.clock import VirtualClock
from pollconsumer.interface.testing.memory import MemoryOpener
from pollconsumer.interface.testing.sandbox_launch import SandboxLaunch
from pollconsumer.runtime.launch.launch import LaunchPlan
from pollconsumer.runtime.mover import Mover, MoverOptions

FOREVER = 1e12


class SandboxMover:
    def __init__(
        self, opener: MemoryOpener, clock: VirtualClock, emit: Callable[[Event], None], options: MoverOptions
    ) -> None:
        moving = SandboxLaunch(opener, MOVER, LaunchPlan(FOREVER, 0.0), clock, emit)
        self._mover, self._store, self._clock = Mover(moving, options), moving.store, clock

    def tick(self) -> float | None:
        """Do all that is due now. Returns the seconds until there is more to do, for the mover or a launch; or None."""
        while True:
            self._mover.look_afresh()
            more_in = [*self._more_in()]
            moved, next_due = self._mover.promote()
            self._mover.maintain()
            if not moved and 0 not in more_in:
                return min([*more_in, *([] if next_due is None else [next_due])], default=None)

    def _more_in(self) -> Iterator[float]:
        """Seconds until there is more than due messages and recurrences: 0 for what an outbox has; until the instants
        of batches, and until pauses end. Launches of the sandbox serve all queues: the mover leaves to them what
        expires."""
        keys, now = self._store.keys, self._clock.now_ms
        for queue in self._mover.queues():
            outbox, pause, batches, _ = self._store.wire.all(
                [
                    ("EXISTS", keys.queue(queue, "outbox")),
                    ("GET", keys.queue(queue, "paused")),
                    ("ZRANGE", keys.queue(queue, "batch_instants"), 0, 0, "WITHSCORES"),
                    ("SET", keys.queue(queue, "served"), 1),
                ]
            )
            yield from [0.0] * outbox
            yield from (max(0.0, float(at) - now) / 1000 for at in batches[1:] if float(at) < inf)
            # A key outlasts its end by a millisecond.
            yield from ((int(end) + 1 - now) / 1000 for end in (pause or b"").split()[1:])
