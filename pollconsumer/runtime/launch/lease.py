"""Taking the lease, or waiting for it as the one successor."""

from __future__ import annotations

from pollconsumer.runtime.launch.frame import Frame
from pollconsumer.runtime.launch.progress import Identity
from pollconsumer.store.leases import TTL, Acquired, Group, Leases

REFRESH = 1.0
"""Seconds after which a waiting successor renews its claim."""
THOUGHT_DEAD_AFTER = 1.5 * TTL
"""Seconds without a renewal, by the successor's clock, after which a holder counts as dead: a server's clock that is
set back by an hour keeps a lease alive for an hour."""


def take(frame: Frame, leases: Leases, group: Group, identity: Identity) -> tuple[Acquired, float] | None:
    """The lease and the boot time of its request; None if another successor waits already, or after the window's end or
    a signal."""
    host, description = frame.host, identity.description()
    entry = identity.entry(None, 0.0, 0.0, frame.progress)
    first_seen: dict[str, float] = {}
    called = False
    while True:
        asked = host.boot_time()
        dead = [sign for sign, at in first_seen.items() if asked - at > THOUGHT_DEAD_AFTER]
        answer = leases.acquire(group, frame.id, description, entry, dead=dead)
        if answer is None:
            return None
        if isinstance(answer, Acquired):
            return answer, asked
        first_seen = {sign: first_seen.get(sign, asked) for sign in answer.signs}
        left = frame.window.left(host.monotonic())
        if frame.interrupted() or left <= 0:
            leases.withdraw(group, frame.id)
            return None
        if frame.plan.handoff.on_call and not called:
            leases.call_for_hand_over(group, left)
            called = True
        leases.wait(group, min(REFRESH, left, max(0.01, answer.lapses_in)))
