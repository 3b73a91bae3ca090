"""Taking the lease, or waiting for it as the one successor."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pollconsumer.runtime.launch.process import boot_time
from pollconsumer.store.leases import TTL, Acquired

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.choices import HandOff
    from pollconsumer.core.window import Window
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
