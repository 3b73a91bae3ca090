"""One launch, from its start to its exit code, for the consumer and the mover.

The order matters: signal handlers; the heartbeat's fork, before there is a connection or a thread; the user's modules,
imported while an earlier launch still holds the lease, so that the hand-off does not wait for them; then the lease,
since only its holder touches messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from pollconsumer.core.errors import LeaseLost, PollConsumerError, StoreRefused, StoreUnreachable
from pollconsumer.core.launcher.observed import Began, observed
from pollconsumer.core.launcher.past import past_launches
from pollconsumer.core.launcher.punctuality import learned
from pollconsumer.core.news.events import (
    Event,
    LaunchBegan,
    LaunchEnded,
    LaunchWaits,
    NamespaceShared,
    PingFailed,
)
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.frame import LONG_WAIT, Frame
from pollconsumer.runtime.launch.heartbeat import GONE, Heartbeat
from pollconsumer.runtime.launch.held import Attendance, Launch, LaunchPlan
from pollconsumer.runtime.launch.host import Host, ThisProcess
from pollconsumer.runtime.launch.shared_memory.launch_progress import EMPTIED, ROLLED_BACK
from pollconsumer.runtime.launch.tenure import Tenure
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.replies import RESTORE
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.leases import TTL, Group, Leases, LeasesOfOthers, TurnedAway
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.queues.server_clock import ServerClock
from pollconsumer.store.records.reservations import Claim

if TYPE_CHECKING:
    from pollconsumer.runtime.launch.pings import Pinger

Work = Callable[[Launch], StopReason]

HEARTBEAT_BUDGET = 2.0
REFRESH = 0.5
"""Seconds after which a waiting successor renews its claim, and looks whether the holder and its heartbeat are gone:
orphans are offered again within a second."""
THOUGHT_DEAD_AFTER = 1.5 * TTL
"""Seconds without a renewal, by the successor's clock, after which a holder counts as dead: a server's clock that is
set back by an hour keeps a lease alive for an hour."""


def run_launch(
    plan: LaunchPlan,
    opener: StoreOpener,
    emit: Callable[[Event], None],
    prepare: Callable[[], tuple[Group, Work]],
    on_launch_death: Callable[[int], None] | None = None,
    host: Host | None = None,
    pinger: Pinger | None = None,
) -> None:
    """Run one launch. ``prepare`` imports the user's modules, and returns the group of the lease, and the work to do
    with it. ``on_launch_death`` is called in the heartbeat's process, with this one's pid, if this one dies. ``pinger``
    tells a monitor, if the launch takes the lease, or waited in vain for one that works beyond its window.

    Raises the error that ended the launch, after releasing the lease: LeaseLost, StoreUnreachable, ConfigurationError.
    """
    host = host or ThisProcess()
    frame = Frame(plan, opener, emit, host, pinger)
    open_store = partial(opener.for_heartbeat, partial(Budget, HEARTBEAT_BUDGET, host))
    heartbeat = host.start_heartbeat(frame.progress, open_store, on_launch_death)
    first_window = frame.window
    try:
        watch = host.watch(frame.end, frame.outlived)
    except RuntimeError:  # the system refuses another thread
        heartbeat.stop()
        raise
    held = None
    try:
        group, work = prepare()
        claimant = _Claimant(frame, group, heartbeat)
        held = claimant.take_lease()
        if frame.window != first_window:
            watch.lift()
            watch = host.watch(frame.end, frame.outlived)
        frame.end.when_longer = watch.extend
        if held is None:
            running = host.monotonic() - frame.window.start
            end = LaunchEnded(group.role, StopReason.LEASE_HELD, running, run_id=plan.run_id)
            if pinger is not None and claimant.waited_for_long_work:
                pinger.begin()
                _ping_end(pinger, end, 0, host, emit)
            emit(end)
        else:
            held.work(work)
    finally:
        watch.lift()
        if held is None or held.released:
            heartbeat.stop()
        # Otherwise the store did not answer: the heartbeat retries the release.


def _ping_end(pinger: Pinger, end: LaunchEnded, code: int, host: Host, emit: Callable[[Event], None]) -> None:
    """Tell the monitor how the launch ended; its answer is awaited before the exit."""

    def await_answer(left: Callable[[], float]) -> None:
        if problem := pinger.wait(left()):
            emit(PingFailed(pinger.host, problem))

    pinger.end(end, code)
    host.before_exit(await_answer)


class _Claimant:
    """A launch that comes for its lease, and may have to wait for it."""

    def __init__(self, frame: Frame, group: Group, heartbeat: Heartbeat) -> None:
        self._frame, self._group, self._host, self._heartbeat = frame, group, frame.host, heartbeat
        self._store = RedisStore(frame.opener.launch_wire(frame.patience), frame.opener.namespace)
        self._leases = Leases(self._store.wire, frame.opener.namespace)
        self._identity = frame.host.identity(frame.id, group.role, group.queues, heartbeat)._replace(
            platform=frame.plan.launcher.platform,
            launcher=frame.plan.launcher.rule,
            run_id=frame.plan.run_id,
            launch_offset=frame.launch_offset,
            next_tick=frame.next_tick,
            config=frame.plan.config,
            handlers=group.handlers,
        )
        self._first_seen: dict[str, float] = {}
        """When each holder's sign was first seen, on the boot clock."""
        self._gone: list[str] = []
        """Signs of holders whose processes have ended."""
        self._waited, self._called = False, 0
        """Whether others held the lease; the fence of the newest holder that was called to hand over."""
        self.waited_for_long_work = False
        """Whether the launch's own window passed while a holder worked beyond its own."""

    def take_lease(self) -> HeldLaunch | None:
        """The launch with its lease; None if another successor waits already, if it does not wait itself, or after the
        window's end or a signal."""
        host, wire, group, identity = self._host, self._store.wire, self._group, self._identity
        entry = identity.entry(None, 0.0, 0.0, self._frame.progress)
        self._leases.demand_rights()
        while True:
            asked, asked_at, loads = host.boot_time(), host.monotonic(), wire.scripts.loads
            dead = [sign for sign, at in self._first_seen.items() if asked - at > THOUGHT_DEAD_AFTER]
            dead += self._gone
            answer = self._leases.acquire(
                group, self._frame.id, identity.description(), entry, dead=dead, waits=not self._frame.plan.if_free
            )
            if isinstance(answer, Claim):
                several = wire.repeated or wire.scripts.loads != loads
                return self._held(answer, asked, asked_at, -inf if several else asked_at)
            came, self._waited = not self._waited, True
            if came:
                self._tell_projects(answer.holders)
            if isinstance(answer, TurnedAway) or not self._await_holders(answer, asked, came=came):
                return None

    def _tell_projects(self, holders: Sequence[bytes]) -> None:
        """Tell of other projects that share the namespace."""
        from pollconsumer.runtime.launch.holders import projects_beside  # few launches wait

        for config in projects_beside(self._identity, holders):
            self._frame.emit(NamespaceShared(config))

    def _await_holders(self, others: LeasesOfOthers, asked: float, *, came: bool) -> bool:
        """Wait until it may help to ask again, after ``asked`` on the boot clock. ``came``: for the first time. False
        if the launch does not wait any longer."""
        from pollconsumer.runtime.launch.holders import is_gone, place_of

        frame, group = self._frame, self._group
        self._first_seen = {sign: self._first_seen.get(sign, asked) for sign in others.signs}
        left = frame.window.left(self._host.monotonic())
        if frame.interrupted() or left <= 0:
            self._leases.withdraw(group, frame.id)
            self.waited_for_long_work = not frame.interrupted() and self._is_held_beyond_window()
            return False
        signed = zip(others.signs, others.holders, strict=True)
        self._gone = [sign for sign, holder in signed if is_gone(holder, self._host)]
        if self._gone or frame.plan.if_free:
            return bool(self._gone)
        if came:
            frame.emit(LaunchWaits(group.role, tuple(map(place_of, others.holders)), left))
        if frame.plan.handoff.on_call and self._called != (newest := others.newest_fence()):
            self._leases.call_for_hand_over(group, newest, left)
            self._called = newest
        self._leases.wait(group, min(REFRESH, left, max(0.01, others.lapses_in)))
        return True

    def _is_held_beyond_window(self) -> bool:
        """Whether a holder of the group works on messages beyond its window."""
        from pollconsumer.store.reading.ledger import working_leases_of  # few launches wait in vain

        held = working_leases_of(self._store.wire, self._store.keys)
        return any(each["working_on"] for each in held if each["lineage"].rpartition(":")[0] == self._group.name)

    def _held(self, acquired: Claim, asked: float, asked_at: float, shown_from: float) -> HeldLaunch:
        """The launch with the lease that was ``acquired``. ``asked``: when the launch asked for it, on the boot clock;
        ``asked_at``: the same on the monotonic clock; ``shown_from``: the earliest instant, on the monotonic clock, at
        which the server's clock can have shown what it answered."""
        frame, host, group = self._frame, self._host, self._group
        now, boot_now = host.monotonic(), host.boot_time()
        began = ServerClock().shown_at(group.name, acquired.at, shown_from, now)
        past = past_launches(self._leases.recent, group.name, own=frame.id)
        rule = frame.plan.launcher.rule
        # A launch of another slot, maybe elsewhere, tells nothing about a tick.
        if frame.plan.observes and group.slots == 1:
            ours = Began(acquired.at / 1000 - (began - frame.window.start), frame.launch_offset)
            seen = observed(past[0] if past else None, ours, learned(past, rule).offset)
            rule = seen.decides
            self._identity = self._identity._replace(launcher=rule, observed=seen)
        frame.learn(learned(past, rule, frame.launch_offset), rule)
        since = boot_now - (now - began)
        waited = began - frame.window.start
        tenure = Tenure(self._identity, acquired, waited, asked, since, frame.end.stop_before, frame.end.grace)
        attendance = Attendance(acquired.at, asked_at)
        self._waited = self._waited or frame.patience().waited >= LONG_WAIT
        return HeldLaunch(frame, self._store, self._leases, tenure, self._heartbeat, attendance, waited=self._waited)


class HeldLaunch:
    """A launch in a process, which holds the lease."""

    def __init__(
        self,
        frame: Frame,
        store: RedisStore,
        leases: Leases,
        tenure: Tenure,
        heartbeat: Heartbeat,
        attendance: Attendance,
        *,
        waited: bool,
    ) -> None:
        self.plan, self.window, self.progress, self.emit = frame.plan, frame.window, frame.progress, frame.emit
        self.end = frame.end
        self.store, self.leases, self.holder = store, leases, tenure.held
        self.attendance, self.id = attendance, tenure.identity.launch
        self.clock, self.chance = frame.host.monotonic, frame.host.chance
        self.interrupted = frame.interruption.__bool__  # asked before each message: without a call between
        self.min_margin, self.waited = frame.min_margin, waited
        self.released = False
        self._boot_time, self._trusted = frame.host.boot_time, frame.progress.trusted
        self._frame, self._tenure, self._heartbeat, self._clocks = frame, tenure, heartbeat, frame.host
        self._pinger = frame.pinger

    def lease_is_trusted(self) -> bool:
        return self._boot_time() < self._trusted[0]

    def check_lease(self) -> bool:
        """Return at once if the lease can be trusted, without a round trip; else wait until it can be again. Returns
        whether it waited.

        LeaseLost if another holds it, or the heartbeat is dead; StoreRefused if the store was emptied; StoreUnreachable
        when patience is over, a little after the window's end: a launch that was suspended beyond its window resumes
        before its heartbeat has asked the store.
        """
        waited = False
        while self._clocks.boot_time() >= (until := self._trusted[0]):
            if until == EMPTIED:
                raise StoreRefused("store emptied while it was used", None, RESTORE)
            if until == ROLLED_BACK:
                self._frame.opener.refuse_what_went_back()
            if until < 0:
                raise LeaseLost("lease lost", None, "a newer launch took it, or it was broken; nothing written since")
            if not self._heartbeat.is_alive():
                raise LeaseLost("lease not renewed", None, GONE)
            if self.interrupted() or self._frame.patience().left() <= 0:
                raise StoreUnreachable("lease not renewed", None, "the store did not answer its heartbeat")
            self._clocks.sleep(0.05)
            waited = True
        return waited

    def bare_wire(self) -> Wire:
        return self._frame.opener.bare_wire(self._frame.patience)

    def work(self, work: Work) -> None:
        """Do the work, and finally release the lease."""
        reason, code = StopReason.DIED, 1
        try:
            self._heartbeat.hold(self._tenure)
            identity = self._tenure.identity
            self.emit(LaunchBegan(identity.role, identity.queues, self.window.left(self.clock())))
            if self._pinger is not None:
                self._pinger.begin()
            reason, code = work(self), 0
        except PollConsumerError as error:
            reason, code = _REASONS.get(type(error), StopReason.DIED), error.exit_code
            raise
        finally:
            self._end(reason, code)

    def _end(self, reason: StopReason, code: int) -> None:
        tenure, ended = self._tenure, self._clocks.boot_time()
        self.progress.end(reason, code)
        with suppress(StoreUnreachable):  # the lease then lapses by itself
            self.leases.release(tenure.held, tenure.entry(self.progress, ended))
            self.released = True
            self._frame.opener.note(self.store.wire)
            self._clocks.at_exit(partial(self._note_exit, ended))
        self._clocks.leave_by(self._frame.exit_by())
        ran, counts = tenure.waited + ended - tenure.since, self.progress.counts().of_messages()
        end = LaunchEnded(tenure.identity.role, reason, ran, *counts, run_id=tenure.identity.run_id)
        if self._pinger is not None:
            _ping_end(self._pinger, end, code, self._clocks, self.emit)
        self.emit(end)

    def _note_exit(self, ended: float) -> None:
        """Add to the ledger how long it took from the end to the exit, which is now."""
        leaving = self._clocks.boot_time() - ended
        # The lease is released already.
        self.leases.release(self.holder, self._tenure.entry(self.progress, ended, leaving))


_REASONS = {LeaseLost: StopReason.LEASE_LOST, StoreUnreachable: StopReason.STORE_UNREACHABLE}
