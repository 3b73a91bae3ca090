"""Taking the lease, or waiting for it as the one successor; and knowing, while it is held, whether it still is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pollconsumer.core.errors import LeaseLost, StoreRefused, StoreUnreachable
from pollconsumer.runtime.launch.heartbeat import GONE
from pollconsumer.runtime.launch.process import boot_time
from pollconsumer.runtime.launch.progress import EMPTIED
from pollconsumer.store.leases import TTL, Acquired
from pollconsumer.store.replies import RESTORE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.choices import HandOff
    from pollconsumer.core.window import Window
    from pollconsumer.runtime.launch.heartbeat import Heartbeat
    from pollconsumer.runtime.launch.progress import Progress
    from pollconsumer.store.leases import Group, Leases

REFRESH = 1.0
"""Seconds after which a waiting successor says again that it waits."""
THOUGHT_DEAD_AFTER = 1.5 * TTL
"""Seconds without a renewal, by the successor's own clock, after which a holder is dead whatever the server's clock
says: set back by an hour, it keeps a lease of seconds alive for an hour."""


def take(
    leases: Leases,
    group: Group,
    launch: str,
    window: Window,
    *,
    description: str,
    entry: str,
    handoff: HandOff,
    interrupted: Callable[[], bool],
) -> tuple[Acquired, float] | None:
    """The lease and the boot time at which it was asked for; None when another successor waits already, or when the
    window closed or a signal came first."""
    first_seen: dict[str, float] = {}
    called = False
    while True:
        asked = boot_time()
        dead = [sign for sign, at in first_seen.items() if asked - at > THOUGHT_DEAD_AFTER]
        answer = leases.acquire(group, launch, description, entry, dead=dead)
        if answer is None:
            return None
        if isinstance(answer, Acquired):
            return answer, asked
        first_seen = {sign: first_seen.get(sign, asked) for sign in answer.signs}
        left = window.left(time.monotonic())
        if interrupted() or left <= 0:
            leases.withdraw(group, launch)
            return None
        if handoff.on_call and not called:
            leases.call_for_hand_over(group, left)
            called = True
        leases.wait(group, min(REFRESH, left, max(0.01, answer.lapses_in)))


class LeaseWatch:
    """Whether the lease is still ours, without asking the server."""

    def __init__(
        self,
        progress: Progress,
        heartbeat: Heartbeat,
        window: Window,
        interrupted: Callable[[], bool],
        farewell: float,
    ) -> None:
        """``farewell``: seconds after the window's end for which the heartbeat's word is waited for. A launch that
        slept through its window wakes before its heartbeat can have asked the store."""
        self._progress, self._heartbeat, self._window, self._interrupted = progress, heartbeat, window, interrupted
        self._farewell = farewell

    def check(self) -> None:
        """Return at once while the lease can be trusted; else wait until it can be again.

        LeaseLost when it is another's, or nobody renews it any more; StoreRefused when the store was emptied;
        StoreUnreachable when the window closed first.
        """
        unheard_since: float | None = None
        while boot_time() >= (until := self._progress.trusted_until()):
            if until == EMPTIED:
                raise StoreRefused("store emptied while it was used", None, RESTORE)
            if until < 0:
                raise LeaseLost("lease lost", None, "a newer launch took it, or it was broken; nothing written since")
            if not self._heartbeat.is_alive():
                raise LeaseLost("lease not renewed", None, GONE)
            now = time.monotonic()
            if self._window.left(now) <= 0:
                unheard_since = unheard_since or now
            if self._interrupted() or (unheard_since and now - unheard_since >= self._farewell):
                raise StoreUnreachable("lease not renewed", None, "the store did not answer its heartbeat")
            time.sleep(0.05)
