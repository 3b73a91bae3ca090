"""One launch, from its start to its exit code: what the consumer and the mover have in common.

The order matters. Signals first, so that none finds the process unprepared. Then the heartbeat's fork, before there is
a connection or a thread. Then the user's modules, while an earlier launch still holds the lease, so that the hand-off
costs no import. Then the lease; and only its holder touches a message.
"""

from __future__ import annotations

import random
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.errors import LeaseLost, PollConsumerError, StoreRefused, StoreUnreachable
from pollconsumer.core.events import LaunchEnded
from pollconsumer.core.window import StopReason, Window, predict_stop
from pollconsumer.runtime.launch.heartbeat import GONE, Heartbeat, Tenure
from pollconsumer.runtime.launch.lease import take
from pollconsumer.runtime.launch.leaving import leave_by
from pollconsumer.runtime.launch.process import boot_time, started_at
from pollconsumer.runtime.launch.progress import EMPTIED, Identity, Progress
from pollconsumer.runtime.launch.signals import Interruption
from pollconsumer.runtime.launch.watchdog import EXIT_CODE, Watchdog
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.patience import COMMAND_TIMEOUT, Budget
from pollconsumer.store.redis_store import RedisStore
from pollconsumer.store.replies import RESTORE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.events import Event
    from pollconsumer.runtime.launch.held import Launch, LaunchPlan
    from pollconsumer.runtime.store_opener import StoreOpener
    from pollconsumer.store.wire import Wire

    Work = Callable[[Launch], StopReason]

HEARTBEAT_BUDGET = 2.0
FAREWELL_BUDGET = 2.0
"""Seconds that an unreachable store may cost a launch whose window is over."""
SHORTEST_TIMEOUT = 0.1
"""Seconds for an answer to what is tried once more when these have passed."""


class Frame:
    """What a launch has from its start on, with or without a lease."""

    def __init__(self, plan: LaunchPlan, opener: StoreOpener, emit: Callable[[Event], None]) -> None:
        self.plan, self.opener, self.emit = plan, opener, emit
        self.window = _window(plan)
        self.interruption = Interruption()
        self.progress = Progress()
        self.id = secrets.token_hex(8)
        self.farewell = min(FAREWELL_BUDGET, plan.grace / 2)
        self._patience = WindowPatience(self.window, self.interrupted, self.farewell)

    def interrupted(self) -> bool:
        return bool(self.interruption)

    def outlived(self) -> str:
        """Note that the watchdog ends the launch. Returns what it is to say."""
        self.progress.end(StopReason.WATCHDOG, EXIT_CODE)
        return "watchdog: the launch outlived its window and grace"

    def patience(self) -> WindowPatience:
        return self._patience


def _window(plan: LaunchPlan) -> Window:
    start, now = started_at(), time.monotonic()
    ahead = plan.next_launches and (now + plan.next_launches[0], now + plan.next_launches[1])
    return Window(start, predict_stop(start, plan.timeout, ahead or None, plan.handoff))


class WindowPatience:
    """Bear with the server for as long as the window is open and no signal has come, and a little longer, once for all
    that a launch has to do at its end."""

    def __init__(self, window: Window, interrupted: Callable[[], bool], farewell: float) -> None:
        self._window, self._interrupted, self._farewell = window, interrupted, farewell
        self._until: float | None = None

    def left(self) -> float:
        now = time.monotonic()
        if self._until is None:
            left = self._window.left(now)
            if left > 0 and not self._interrupted():
                return left + self._farewell
            self._until = now + self._farewell
        return max(0.0, self._until - now)

    def pause(self, seconds: float) -> None:
        time.sleep(min(seconds, self.left()))

    def for_one_answer(self) -> float:
        """A server that says nothing must not keep the launch beyond its grace."""
        return min(COMMAND_TIMEOUT, max(SHORTEST_TIMEOUT, self.left()))


def run_launch(
    plan: LaunchPlan,
    opener: StoreOpener,
    emit: Callable[[Event], None],
    prepare: Callable[[], tuple[Group, Work]],
    on_launch_death: Callable[[int], None] | None = None,
) -> None:
    """Run one launch. ``prepare`` imports what the work needs, and returns whose lease it takes, and the work: that
    gets to hold the lease. ``on_launch_death`` is called in another process, with the number of this one, should it die
    at work.

    Raises what ended the launch otherwise than normally, after the lease was given back: LeaseLost, StoreUnreachable,
    errors of configuration.
    """
    frame = Frame(plan, opener, emit)
    frame.interruption.install()
    heartbeat = Heartbeat(
        frame.progress, lambda: opener.for_heartbeat(lambda: Budget(HEARTBEAT_BUDGET)), on_launch_death
    )
    hard_end = frame.window.left(time.monotonic()) + plan.grace
    watchdog = Watchdog(hard_end, frame.outlived)
    leave_by(time.monotonic() + hard_end)
    held = None
    try:
        group, work = prepare()
        held = _take_lease(frame, group, heartbeat)
        if held is None:
            running = time.monotonic() - frame.window.start
            emit(LaunchEnded(group.role, StopReason.LEASE_HELD, running, 0, 0, 0, 0))
        else:
            held.work(work)
    finally:
        if held is None or held.released:
            heartbeat.stop()
        # Else the store did not answer. The heartbeat sees us go, and says goodbye for us if it comes back in time.
        watchdog.stand_down()


def _take_lease(frame: Frame, group: Group, heartbeat: Heartbeat) -> HeldLaunch | None:
    store = RedisStore(frame.opener.wire(frame.patience), frame.opener.namespace)
    leases = Leases(store.wire, frame.opener.namespace)
    identity = Identity.of_this_process(frame.id, group.role, group.queues)
    taken = take(
        leases,
        group,
        frame.id,
        frame.window,
        description=identity.description(),
        entry=identity.entry(None, 0.0, 0.0, frame.progress),
        handoff=frame.plan.handoff,
        interrupted=frame.interrupted,
    )
    if taken is None:
        return None
    acquired, asked = taken
    now, since = time.monotonic(), boot_time()
    hard_end = since + frame.window.left(now) + frame.plan.grace
    tenure = Tenure(identity, acquired, now - frame.window.start, asked, since, hard_end)
    return HeldLaunch(frame, store, leases, tenure, heartbeat)


class HeldLaunch:
    """A launch in a process of its own that holds the lease."""

    def __init__(self, frame: Frame, store: RedisStore, leases: Leases, tenure: Tenure, heartbeat: Heartbeat) -> None:
        self.plan, self.window, self.progress, self.emit = frame.plan, frame.window, frame.progress, frame.emit
        self.store, self.leases, self.holder = store, leases, tenure.acquired.holder
        self.clock, self.chance, self.interrupted = time.monotonic, random.random, frame.interrupted
        self.released = False
        self._frame, self._tenure, self._heartbeat = frame, tenure, heartbeat

    def check_lease(self) -> None:
        """Return at once while the lease can be trusted, without asking the server; else wait until it can be again.

        LeaseLost when it is another's, or nobody renews it any more; StoreRefused when the store was emptied;
        StoreUnreachable when the window closed first, and the heartbeat's word was waited for a little longer: a launch
        that slept through its window wakes before its heartbeat can have asked the store.
        """
        unheard_since: float | None = None
        while boot_time() >= (until := self.progress.trusted_until()):
            if until == EMPTIED:
                raise StoreRefused("store emptied while it was used", None, RESTORE)
            if until < 0:
                raise LeaseLost("lease lost", None, "a newer launch took it, or it was broken; nothing written since")
            if not self._heartbeat.is_alive():
                raise LeaseLost("lease not renewed", None, GONE)
            now = time.monotonic()
            if self.window.left(now) <= 0:
                unheard_since = unheard_since or now
            if self.interrupted() or (unheard_since and now - unheard_since >= self._frame.farewell):
                raise StoreUnreachable("lease not renewed", None, "the store did not answer its heartbeat")
            time.sleep(0.05)

    def bare_wire(self) -> Wire:
        return self._frame.opener.bare_wire(self._frame.patience)

    def work(self, work: Work) -> None:
        """Do it, and give the lease back however it ends."""
        reason, code = StopReason.DIED, 1
        try:
            self._heartbeat.hold(self._tenure)
            reason, code = work(self), 0
        except PollConsumerError as error:
            reason, code = _REASONS.get(type(error), StopReason.DIED), error.exit_code
            raise
        finally:
            self._end(reason, code)

    def _end(self, reason: StopReason, code: int) -> None:
        identity, acquired, waited = self._tenure[:3]
        held = boot_time() - self._tenure.since
        self.progress.end(reason, code)
        entry = identity.entry(acquired, waited, held, self.progress)
        with suppress(StoreUnreachable):  # the lease then lapses by itself
            self.leases.release(self.holder, identity.role, identity.launch, entry)
            self.released = True
        self.emit(LaunchEnded(identity.role, reason, waited + held, *self.progress.counts()[:4]))


_REASONS = {LeaseLost: StopReason.LEASE_LOST, StoreUnreachable: StopReason.STORE_UNREACHABLE}
