"""One launch, from its start to its exit code: what the consumer and the mover have in common.

The order matters. Signals first, so that none finds the process unprepared. Then the heartbeat's fork, before there is
a connection or a thread. Then the user's modules, while an earlier launch still holds the lease, so that the hand-off
costs no import. Then the lease; and only its holder touches a message.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pollconsumer.core.errors import LeaseLost, PollConsumerError, StoreRefused, StoreUnreachable
from pollconsumer.core.events import LaunchEnded
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.frame import Frame
from pollconsumer.runtime.launch.heartbeat import GONE
from pollconsumer.runtime.launch.host import ThisProcess
from pollconsumer.runtime.launch.keeping import Tenure
from pollconsumer.runtime.launch.lease import take
from pollconsumer.runtime.launch.progress import EMPTIED
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.patience import Budget
from pollconsumer.store.redis_store import RedisStore
from pollconsumer.store.replies import RESTORE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.events import Event
    from pollconsumer.runtime.launch.heartbeat import Heartbeat
    from pollconsumer.runtime.launch.held import Launch, LaunchPlan
    from pollconsumer.runtime.launch.host import Host
    from pollconsumer.runtime.store_opener import StoreOpener
    from pollconsumer.store.wire import Wire

    Work = Callable[[Launch], StopReason]

HEARTBEAT_BUDGET = 2.0


def run_launch(
    plan: LaunchPlan,
    opener: StoreOpener,
    emit: Callable[[Event], None],
    prepare: Callable[[], tuple[Group, Work]],
    on_launch_death: Callable[[int], None] | None = None,
    host: Host | None = None,
) -> None:
    """Run one launch. ``prepare`` imports what the work needs, and returns whose lease it takes, and the work: that
    gets to hold the lease. ``on_launch_death`` is called in another process, with the number of this one, should it die
    at work.

    Raises what ended the launch otherwise than normally, after the lease was given back: LeaseLost, StoreUnreachable,
    errors of configuration.
    """
    host = host or ThisProcess()
    frame = Frame(plan, opener, emit, host)
    open_store = partial(opener.for_heartbeat, partial(Budget, HEARTBEAT_BUDGET, host))
    heartbeat = host.start_heartbeat(frame.progress, open_store, on_launch_death)
    go_on = host.end_in(frame.window.left(host.monotonic()) + plan.grace, frame.outlived)
    held = None
    try:
        group, work = prepare()
        held = _take_lease(frame, group, heartbeat)
        if held is None:
            running = host.monotonic() - frame.window.start
            emit(LaunchEnded(group.role, StopReason.LEASE_HELD, running, 0, 0, 0, 0))
        else:
            held.work(work)
    finally:
        if held is None or held.released:
            heartbeat.stop()
        # Else the store did not answer. The heartbeat sees us go, and says goodbye for us if it comes back in time.
        go_on()


def _take_lease(frame: Frame, group: Group, heartbeat: Heartbeat) -> HeldLaunch | None:
    store = RedisStore(frame.opener.wire(frame.patience), frame.opener.namespace)
    leases = Leases(store.wire, frame.opener.namespace)
    identity = frame.host.identity(frame.id, group.role, group.queues)
    taken = take(frame, leases, group, identity)
    if taken is None:
        return None
    acquired, asked = taken
    now, since = frame.host.monotonic(), frame.host.boot_time()
    hard_end = since + frame.window.left(now) + frame.plan.grace
    tenure = Tenure(identity, acquired, now - frame.window.start, asked, since, hard_end)
    return HeldLaunch(frame, store, leases, tenure, heartbeat)


class HeldLaunch:
    """A launch in a process of its own that holds the lease."""

    def __init__(self, frame: Frame, store: RedisStore, leases: Leases, tenure: Tenure, heartbeat: Heartbeat) -> None:
        self.plan, self.window, self.progress, self.emit = frame.plan, frame.window, frame.progress, frame.emit
        self.store, self.leases, self.holder = store, leases, tenure.acquired.holder
        self.clock, self.chance, self.interrupted = frame.host.monotonic, frame.host.chance, frame.interrupted
        self.released = False
        self._frame, self._tenure, self._heartbeat, self._clocks = frame, tenure, heartbeat, frame.host

    def lease_is_trusted(self) -> bool:
        return self._clocks.boot_time() < self.progress.trusted_until()

    def check_lease(self) -> None:
        """Return at once while the lease can be trusted, without asking the server; else wait until it can be again.

        LeaseLost when it is another's, or nobody renews it any more; StoreRefused when the store was emptied;
        StoreUnreachable when the window closed first, and the heartbeat's word was waited for a little longer: a launch
        that slept through its window wakes before its heartbeat can have asked the store.
        """
        unheard_since: float | None = None
        while self._clocks.boot_time() >= (until := self.progress.trusted_until()):
            if until == EMPTIED:
                raise StoreRefused("store emptied while it was used", None, RESTORE)
            if until < 0:
                raise LeaseLost("lease lost", None, "a newer launch took it, or it was broken; nothing written since")
            if not self._heartbeat.is_alive():
                raise LeaseLost("lease not renewed", None, GONE)
            now = self._clocks.monotonic()
            if self.window.left(now) <= 0:
                unheard_since = unheard_since or now
            if self.interrupted() or (unheard_since and now - unheard_since >= self._frame.farewell):
                raise StoreUnreachable("lease not renewed", None, "the store did not answer its heartbeat")
            self._clocks.sleep(0.05)

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
        held = self._clocks.boot_time() - self._tenure.since
        self.progress.end(reason, code)
        entry = identity.entry(acquired, waited, held, self.progress)
        with suppress(StoreUnreachable):  # the lease then lapses by itself
            self.leases.release(self.holder, identity.role, identity.launch, entry)
            self.released = True
        self.emit(LaunchEnded(identity.role, reason, waited + held, *self.progress.counts()[:4]))


_REASONS = {LeaseLost: StopReason.LEASE_LOST, StoreUnreachable: StopReason.STORE_UNREACHABLE}
