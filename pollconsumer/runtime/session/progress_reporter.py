"""Stores what handlers report of their progress, beside them: a handler never waits for it.

A step or a checkpoint takes along what is there. Otherwise a thread stores it about once a second, which is started
when a handler reports for the first time.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pollconsumer.core.errors import PollConsumerError, StoreUnreachable
from pollconsumer.runtime.handling.shield import Shield
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.system.own_threads import Started, start_thread
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from pollconsumer.core.messages.message_steps import Progress
    from pollconsumer.store.records.reports import Reports

CARRIED_WITHIN = 0.1
"""Seconds that a report waits for a step to take it along."""


class ProgressReporter:
    """Stores reports. ``every``: seconds between two times; 0 to store each report at once, in its handler's thread."""

    def __init__(self, launch: Launch, every: float) -> None:
        self._launch, self._every = launch, every
        self._reports: dict[str, dict[bytes, Progress]] = {}
        self._lock, self._storing = threading.Lock(), threading.Lock()
        self._reported = threading.Event()
        self._thread: Started | None = None
        self._store: RedisStore | None = None
        self.has_reported = False
        """Whether any handler of this launch has ever reported."""

    def report(self, reservation: Reservation, progress: Progress) -> None:
        with Shield():
            self.has_reported = True
            with self._lock:
                self._reports.setdefault(reservation.queue, {})[reservation.id] = progress
            if not self._every:
                self._store_all()
                return
            if self._thread is None:
                self._thread = start_thread("progress", self._serve)
            self._reported.set()

    @contextmanager
    def carried(self, lost: Set[str] = frozenset()) -> Iterator[Reports | None]:
        """Yield the reports that are not stored yet, for the caller to store within the block: afterwards, all earlier
        reports are stored, too, and none is stored after a newer one. Those that are not stored, as reports of ``lost``
        queues, are stored later."""
        if self._reports or self._storing.locked():
            with self._storing:
                reports = self._taken()
                self._keep({queue: each for queue, each in reports.items() if queue in lost})
                carried = {queue: each for queue, each in reports.items() if queue not in lost}
                try:
                    yield carried
                except (StoreUnreachable, Unanswered):
                    self._keep(carried)
                    raise
        else:
            yield None

    def _keep(self, reports: Reports) -> None:
        """Have reports that could not be stored, and were not replaced meanwhile, stored later."""
        with self._lock:
            for queue, each in reports.items():
                self._reports[queue] = {**each, **self._reports.get(queue, {})}

    def _taken(self) -> Reports:
        with self._lock:
            reports, self._reports = self._reports, {}
            return reports

    def _serve(self) -> None:
        while True:
            self._reported.wait()
            time.sleep(CARRIED_WITHIN)
            self._reported.clear()
            if self._store_all():
                time.sleep(self._every - CARRIED_WITHIN)

    def _store_all(self) -> bool:
        """Store all reports. Returns whether there were any. If the store does not answer, they are stored later: by
        this thread, or with the end of their messages."""
        with self._storing:
            reports = self._taken()
            if not reports:
                return False
            if self._store is None:
                self._store = RedisStore(self._launch.bare_wire(), self._launch.store.keys.namespace)
            try:
                self._store.report(self._launch.claim, reports)
            except (StoreUnreachable, Unanswered):
                self._keep(reports)  # GUARD the last report of a message
                self._reported.set()
            except PollConsumerError:
                pass  # as where a newer launch has the lease
            return True
