"""One launch, from its start to its exit code, for the consumer and the mover.

The order of the steps matters. First come the signal handlers. Then the heartbeat is forked, before there is a
connection or a thread. Then the user's modules are imported, while an earlier launch may still hold the lease, so that
the hand-off does not wait for them. Last comes the lease, since only its holder touches messages."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core import json_values
from pollconsumer.core.choices import HandOff, LauncherRule
from pollconsumer.core.durations import HANDLER_LIMIT
from pollconsumer.core.errors import LeaseLost, StoreRefused, StoreUnreachable
from pollconsumer.core.events import Event, LaunchBegan, LaunchEnded, LaunchWaits, NamespaceShared
from pollconsumer.core.launcher import (
    FLOOR_OF_DROP,
    UNKNOWN,
    Found,
    Punctuality,
    allowance,
    learned,
    observed,
    past_launches,
)
from pollconsumer.core.notation.instants import ceil_ms
from pollconsumer.core.window import OUR_OWN, StopReason, Window, predict_stop, tick_from
from pollconsumer.runtime.launch.board import EMPTIED, ROLLED_BACK, LaunchProgress
from pollconsumer.runtime.launch.heartbeat import GONE, Heartbeat, OpenStore
from pollconsumer.runtime.launch.launch_end import LONG_WAIT, LaunchEnd, WindowPatience
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.runtime.system.process import all_gone, birth, namespace, started_at
from pollconsumer.runtime.system.signals import CALL, StopRequest
from pollconsumer.runtime.system.system_limits import exit_code_of
from pollconsumer.runtime.system.watchdog import (
    EXIT_CODE,
    EXIT_WITHIN,
    WATCHDOG,
    at_the_end,
    before_exit,
    expect_exit,
    leave_by,
    watch,
)
from pollconsumer.store.client.patience import Budget, Clocks
from pollconsumer.store.client.replies import RESTORE
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.leases import TRUSTED_FOR, TTL, Group, HeldLeases, Leases, TurnedAway
from pollconsumer.store.queues.redis_store import RedisStore, ServerClock
from pollconsumer.store.records.reservations import Claim

if TYPE_CHECKING:
    from pollconsumer.runtime.launch.pings import Pinger


class Host(Clocks):
    """Clocks and processes of this machine and this process, which tests replace."""

    started_at = staticmethod(started_at)
    """The instant at which this process started, on the monotonic clock."""
    all_gone = staticmethod(all_gone)
    """Whether all processes in a description by `processes` are known to have ended."""
    leave_by = staticmethod(leave_by)
    """Have this process's exit, once it begins, end before an instant on the monotonic clock."""
    before_exit = staticmethod(before_exit)
    """Have a function called before this process exits, with a function that returns how many seconds it has left."""
    at_exit = staticmethod(at_the_end)
    """Have a function called last of all when this process exits."""
    expect_exit = staticmethod(expect_exit)
    """The launch is over: replace its limit by the time limit within which the exit must begin."""

    def new_id(self) -> str:
        return os.urandom(8).hex()

    def chance(self) -> float:
        return int.from_bytes(os.urandom(6), "big") / 2**48

    def processes(self, heartbeat_pid: int) -> dict[str, Any]:
        """Where the launch runs: host, pid, pid namespace, births of launch and heartbeat, see `process.birth`."""
        births = {str(pid): birth(pid) or "" for pid in (os.getpid(), heartbeat_pid)}
        return {"host": socket.gethostname(), "pid": os.getpid(), "namespace": namespace(), "births": births}

    def catch_signals(self) -> StopRequest:
        """Install the signal handlers. The first signal asks the launch to stop; the second ends it."""
        interruption = StopRequest(os.environ.get("WEBJOBS_SHUTDOWN_FILE") or None)
        interruption.install()
        return interruption

    def start_heartbeat(
        self, progress: LaunchProgress, open_store: OpenStore, on_launch_death: Callable[[int], None] | None
    ) -> Heartbeat:
        gc.freeze()  # a collection would visit all modules, and write to memory that both processes share
        gc.enable()
        signal.signal(CALL, lambda *_: progress.stops.called())
        return Heartbeat(progress, open_store, on_launch_death)

    def watch(self, end: LaunchEnd, last_act: Callable[[], str]) -> None:
        """Call ``last_act`` at the hard end of ``end``, then end this process. A regular exit must end before."""
        self.leave_by(end.hard_end())
        watch(end.hard_end, last_act)

    def extend(self, end: LaunchEnd) -> None:
        """Let faulthandler, which ends this process if the GIL is held, do so only at `LaunchEnd.farthest` plus the
        grace."""
        WATCHDOG.bound(end.farthest() + end.grace - self.monotonic())


HEARTBEAT_BUDGET = 2.0
REFRESH = 0.5
"""Seconds after which a waiting successor asks for the lease again, and checks whether the processes of the holder are
gone. So the messages of a killed launch are offered again within a second."""
THOUGHT_DEAD_AFTER = 1.5 * TTL
"""Seconds without a renewal, by the successor's own clock, after which a holder counts as dead. A successor cannot rely
on the expiry of the lease alone: if the server's clock is set back by an hour, the lease lives an hour longer."""
STEP_MS = 1000
"""Milliseconds. If the server's clock deviates from the monotonic clock by more, it was set, not just slewed."""
_REASONS = {LeaseLost: StopReason.LEASE_LOST, StoreUnreachable: StopReason.STORE_UNREACHABLE}


class LaunchPlan(NamedTuple):
    """The settings of a launch; durations in seconds. ``next_launches``: seconds from now to the next two scheduled
    ones. ``launched_ago``: seconds from the scheduled time of this launch until now. ``observes``: the launcher's rule
    is learned from the ledger. ``min_margin``: None if it is learned. ``reports_completed``: the log shows each
    completed message. ``config``: the path of the configuration. ``if_free``: do not wait if the lease is held.
    ``handler_limit``: the limit of a handler without a timeout. ``window_is_budget``: the platform ends the launch at
    the end of its window. ``least_exit``: see `learned`."""

    timeout: float
    grace: float
    handoff: HandOff = HandOff.DEADLINE
    next_launches: tuple[float, float] | None = None
    launched_ago: float | None = None
    launcher: Found = UNKNOWN
    observes: bool = False
    min_margin: float | None = None
    run_id: str | None = None
    reports_completed: bool = False
    config: str = ""
    if_free: bool = False
    handler_limit: float = HANDLER_LIMIT
    window_is_budget: bool = False
    least_exit: float = 0.0


class Attendance:
    """The instant from which on this launch could enqueue occurrences, by the server's clock. That clock may be set."""

    def __init__(self, since_ms: int, asked: float) -> None:
        """``since_ms``: when the launch took the lease, by the server's clock. ``asked``: when it asked for the lease,
        on the monotonic clock."""
        self._since = since_ms
        self.seen_ms = since_ms
        """The server's time at the last call of `since`, in epoch ms."""
        self._asked = asked

    def since(self, now_ms: int, asked: float, answered: float) -> int:
        """Since when this launch could enqueue occurrences, in epoch ms. ``now_ms``: the server's time, for which the
        launch asked at ``asked``, with the answer at ``answered``, on the monotonic clock. Time that the server's clock
        skipped since the last call is left out."""
        present_since = max(0, now_ms - ceil_ms(answered - self._asked))
        if present_since > self.seen_ms + STEP_MS:
            self._since = present_since
        elif now_ms < self.seen_ms:
            self._since = min(self._since, present_since)
        self.seen_ms, self._asked = now_ms, asked
        return self._since


class Launch:
    """A launch. Window, patience and progress exist from its start; `take_lease` sets ``claim``, ``store`` and
    ``leases``; then `work` runs."""

    store: RedisStore
    leases: Leases
    claim: Claim
    attendance: Attendance

    def __init__(
        self,
        plan: LaunchPlan,
        opener: StoreOpener,
        emit: Callable[[Event], None],
        host: Host,
        pinger: Pinger | None = None,
    ) -> None:
        self.plan, self.emit, self.id = plan, emit, host.new_id()
        self.clock, self.chance, self._boot_time = host.monotonic, host.chance, host.boot_time
        self._opener, self._host, self._pinger = opener, host, pinger
        self._start, now = host.started_at(), host.monotonic()
        self._ahead = plan.next_launches and (now + plan.next_launches[0], now + plan.next_launches[1])
        offset = None if plan.launched_ago is None else plan.launched_ago - (now - self._start)
        # If a launch was suspended before it planned, it knows only ticks after its own, and others would learn from
        # them.
        passed = offset is not None and offset < -OUR_OWN
        self._offset = None if passed else offset
        self._next_tick = None if passed or self._ahead is None else self._ahead[0] - self._start
        interruption = host.catch_signals()
        self.interrupted = interruption.__bool__  # called before each message: so without a function in between
        """Whether the launch was asked to stop."""
        self.progress = LaunchProgress()
        self._trusted = self.progress.trusted
        self.end = LaunchEnd(
            self.progress.flight, self._start, plan.grace, plan.handler_limit, bounded=plan.window_is_budget
        )
        self.window = Window(self._start, self._start)
        self._patience = WindowPatience(self.end, self.interrupted, host, emit)
        self._learn(Punctuality(), plan.launcher.rule)
        self.waited = False
        """Whether the lease was held when this launch first asked for it, or the store did not answer for long."""
        self.waited_for_long_work = False
        """Whether this launch left because a holder of the lease worked beyond that holder's window."""
        self.released = False
        self._unlearned = 0.0
        """Seconds of the exit that the ledger does not count, see `unlearned`."""
        self._first_seen: dict[str, float] = {}
        """When this launch first saw each holder's sign, on the boot clock. A sign changes with each renewal."""
        self._gone: list[str] = []
        """Signs of the holders whose processes are known to have ended."""
        self._called = 0
        """The highest fence among the holders that this launch has called to hand over; 0 if it has called none."""

    def _learn(self, punctuality: Punctuality, rule: LauncherRule) -> None:
        """Set the launcher's ``rule``. Compute window and margin from it and earlier launches' ``punctuality``."""
        found = self.plan.launcher._replace(rule=rule)
        self.plan = plan = self.plan._replace(launcher=found, handoff=rule.handoff(self.plan.handoff))
        late, margin = allowance(plan.launcher, punctuality, plan.min_margin)
        self.window = Window(self._start, predict_stop(self._start, plan.timeout, self._ahead, plan.handoff, late))
        self.end.stop_before = self.window.stop_before
        # A margin that is only remembered never takes more than half of a window.
        self.min_margin = margin if plan.min_margin is not None else min(margin, self.window.left(self._start) / 2)
        """Seconds that must be left in the window to begin a message: the plan's, or the learned one."""

    def patience(self) -> WindowPatience:
        return self._patience

    def bare_wire(self) -> Wire:
        """Another connection to the same store, not opened yet."""
        return self._opener.bare_wire(self.patience)

    def outlived(self) -> str:
        """Record that the watchdog ends the launch. Returns the message to print."""
        self.progress.end(StopReason.WATCHDOG, EXIT_CODE)
        return self.end.what_resisted(self.clock())

    def exit_by(self) -> float:
        """The latest instant, on the monotonic clock, at which the process must have exited if its work ends now. If
        the launcher skips a tick while a launch is alive (`LauncherRule.DROP`), that is before the next tick."""
        now = self.clock()
        until = min(now + EXIT_WITHIN, self.end.hard_end())
        if self.plan.launcher.rule is LauncherRule.DROP and self._ahead:
            tick = tick_from(now, self._ahead)  # earlier ones are dropped already, since a message took long
            until = min(until, tick - self.plan.launcher.reaped_late - FLOOR_OF_DROP)
        return until

    # The lease

    def take_lease(self, group: Group, heartbeat: Heartbeat) -> bool:
        """Take the lease, waiting for its holders if the plan says so. Returns False if another launch waits for it
        already, if this launch must not wait, if the store is about to close, or after a signal or the window's end."""
        self._heartbeat, self.progress.facts = heartbeat, self._facts(group, heartbeat.pid)
        self.store = RedisStore(self._opener.launch_wire(self.patience), self._opener.namespace)
        self.leases = Leases(self.store.wire, self._opener.namespace)
        wire, description, entry = self.store.wire, self.progress.description(), self.progress.entry(None, 0.0)
        self.leases.demand_rights()
        while True:
            asked, asked_at, loads = self._boot_time(), self.clock(), wire.scripts.loads
            dead = [sign for sign, at in self._first_seen.items() if asked - at > THOUGHT_DEAD_AFTER]
            dead += self._gone
            waits = not self.plan.if_free
            answer = self.leases.acquire(group, self.id, description, entry, dead=dead, waits=waits)
            if isinstance(answer, Claim):
                several = wire.repeated or wire.scripts.loads != loads
                self._hold(answer, group, asked, asked_at, -inf if several else asked_at)
                return True
            came, self.waited = not self.waited, True
            if came:
                for config in _projects_beside(self.progress.facts, answer.holders):
                    self.emit(NamespaceShared(config))
            if isinstance(answer, TurnedAway) or not self._await_holders(group, answer, asked, came=came):
                return False

    def _facts(self, group: Group, heartbeat_pid: int) -> dict[str, Any]:
        plan = self.plan
        return {
            "launch_id": self.id,
            "role": group.role,
            "queues": group.queues,
            **self._host.processes(heartbeat_pid),
            "launch_offset_seconds": None if self._offset is None else round(self._offset, 3),
            "next_tick_seconds": None if self._next_tick is None else round(self._next_tick, 3),
            "observed": None,
            "platform": plan.launcher.platform,
            "launcher": plan.launcher.rule,
            "run_id": plan.run_id,
            "config": plan.config,
            "handlers": group.handlers,
        }

    def _await_holders(self, group: Group, others: HeldLeases, asked: float, *, came: bool) -> bool:
        """Wait until it is worth asking for the lease again. ``asked``: when the launch last asked, on the boot clock.
        ``came``: that was the first time. Returns False if the launch no longer waits."""
        self._first_seen = {sign: self._first_seen.get(sign, asked) for sign in others.signs}
        left = self.window.left(self.clock())
        if self.interrupted() or left <= 0:
            self.leases.withdraw(group, self.id)
            if not self.interrupted():
                from pollconsumer.store.reading.ledger import working_leases_of  # few launches wait in vain

                held = working_leases_of(self.store.wire, self.store.keys)
                ours = [each["working_on"] for each in held if each["lineage"].rpartition(":")[0] == group.name]
                self.waited_for_long_work = any(ours)
            return False
        signed = zip(others.signs, others.holders, strict=True)
        self._gone = [sign for sign, holder in signed if _is_gone(holder, self._host)]
        if self._gone or self.plan.if_free:
            return bool(self._gone)
        if came:
            locations = [
                f"pid {each.get('pid', '?')} on {each.get('host', '?')}" for each in map(_read, others.holders)
            ]
            self.emit(LaunchWaits(group.role, tuple(locations), left))
        if self.plan.handoff.on_call and self._called != (newest := others.newest_fence()):
            self.leases.call_for_hand_over(group, newest, left)
            self._called = newest
        self.leases.wait(group, min(REFRESH, left, max(0.01, others.lapses_in)))
        return True

    def _hold(self, claim: Claim, group: Group, asked: float, asked_at: float, shown_from: float) -> None:
        """Begin to hold the lease. ``asked`` and ``asked_at``: when the launch asked for it, on the boot clock and on
        the monotonic clock. ``shown_from``: the server took ``claim.at`` from its clock no earlier than this instant,
        on the monotonic clock."""
        now, boot_now = self.clock(), self._boot_time()
        began = ServerClock().shown_at(group.name, claim.at, shown_from, now)
        past = past_launches(self.leases.recent, group.name, own=self.id)
        rule, facts = self.plan.launcher.rule, self.progress.facts
        # A launch of another slot may run elsewhere, and shows nothing about a tick.
        if self.plan.observes and group.slots == 1:
            started, least = claim.at / 1000 - (began - self.window.start), learned(past, rule).offset
            seen = observed(past[0] if past else None, started, self._offset, least)
            rule = seen.decides
            facts |= {"launcher": rule, "observed": seen}
        self._learn(learned(past, rule, self._offset, self.plan.least_exit), rule)
        self.claim, self.attendance = claim, Attendance(claim.at, asked_at)
        self.progress.waited, self.progress.since = began - self.window.start, boot_now - (now - began)
        self._asked = asked
        self.waited = self.waited or self._patience.waited >= LONG_WAIT

    def lease_is_trusted(self) -> bool:
        return self._boot_time() < self._trusted[0]

    def check_lease(self) -> bool:
        """Wait until the lease can be trusted. That is so at once, without a round trip, unless renewals are late.
        Returns whether it waited: then others may have recovered the messages that this launch had reserved.

        LeaseLost if another launch holds the lease, or the heartbeat is dead. StoreRefused if the store was emptied or
        rolled back. StoreUnreachable if the heartbeat could not renew the lease until a signal came, or until the
        patience was used up, a little after the window's end."""
        waited = False
        while self._boot_time() >= (until := self._trusted[0]):
            if until == EMPTIED:
                raise StoreRefused("store emptied while it was used", None, RESTORE)
            if until == ROLLED_BACK:
                self._opener.rollback.refuse("store rolled back while it was used")
            if until < 0:
                raise LeaseLost("lease lost", None, "a newer launch took it, or it was broken; nothing written since")
            if not self._heartbeat.is_alive():
                raise LeaseLost("lease not renewed", None, GONE)
            if self.interrupted() or self._patience.left() <= 0:
                raise StoreUnreachable("lease not renewed", None, "the store did not answer its heartbeat")
            self._host.sleep(0.05)
            waited = True
        return waited

    # The work

    def work(self, work: Work) -> None:
        """Call ``work``, then release the lease and report the end, also after an error."""
        reason, code = StopReason.FAILED, 1
        try:
            self.progress.trust_until(self._asked + TRUSTED_FOR)
            self._heartbeat.hold(self.claim, self.end)
            self.emit(LaunchBegan(self.claim.role, self.progress.facts["queues"], self.window.left(self.clock())))
            if self._pinger is not None:
                self._pinger.begin()
            reason, code = work(self), 0
        except Exception as error:
            reason = next((each for kind, each in _REASONS.items() if isinstance(error, kind)), StopReason.FAILED)
            code = exit_code_of(error)
            raise
        finally:
            self._release(reason, code)

    def _release(self, reason: StopReason, code: int) -> None:
        ended, progress = self._boot_time(), self.progress
        progress.end(reason, code)
        with suppress(StoreUnreachable):  # then the lease expires by itself
            self.leases.release(self.claim, progress.entry(self.claim, ended))
            self.released = True
            self._opener.rollback.note(self.store.wire)
            self._host.at_exit(partial(self._note_exit, ended))
        self._host.leave_by(self.exit_by())
        self._report_end(self.claim.role, reason, progress.ran(ended), code)

    def leave(self, role: str) -> None:
        """Report that the launch ends without the lease (`StopReason.LEASE_HELD`). A monitor hears of it only if a
        holder works beyond its own window."""
        ran = self.clock() - self.window.start
        if not self.waited_for_long_work:
            self._pinger = None
        elif self._pinger is not None:
            self._pinger.begin()
        self._report_end(role, StopReason.LEASE_HELD, ran, 0)

    def _report_end(self, role: str, reason: StopReason, ran: float, code: int) -> None:
        """Report the launch's end to its monitor and the log. The exit waits for the monitor's answer."""
        end = LaunchEnded(role, reason, ran, *self.progress.counts()[:4], run_id=self.plan.run_id)
        if self._pinger is not None:
            self._pinger.end(end, code)
            self._host.before_exit(partial(self._pinger.wait, emit=self.emit))
        self.emit(end)

    def unlearned(self, act: Callable[[Callable[[], float]], None]) -> Callable[[Callable[[], float]], None]:
        """``act``, for `Host.before_exit`, with its duration left out of the exit time in the ledger, from which later
        launches learn. The duration depends on another host."""

        def timed(left: Callable[[], float]) -> None:
            began = self._boot_time()
            act(left)
            self._unlearned += self._boot_time() - began

        return timed

    def _note_exit(self, ended: float) -> None:
        """Add to the ledger how long the exit took, from ``ended`` on the boot clock, without `unlearned` acts."""
        leaving = self._boot_time() - ended - self._unlearned
        # The lease is already released.
        self.leases.release(self.claim, self.progress.entry(self.claim, ended, leaving))


Work = Callable[[Launch], StopReason]


def run_launch(
    plan: LaunchPlan,
    opener: StoreOpener,
    emit: Callable[[Event], None],
    prepare: Callable[[], tuple[Group, Work]],
    on_launch_death: Callable[[int], None] | None = None,
    host: Host | None = None,
    pinger: Pinger | None = None,
) -> None:
    """Run one launch. ``prepare`` imports the user's modules, and returns the group of the lease and the work to do
    under it. If this process dies, the heartbeat calls ``on_launch_death`` with the pid of this process. ``pinger``
    reports to a monitor if the launch takes the lease, or if it waited in vain for a launch that works beyond its
    window.

    Releases the lease, then raises the error that ended the launch: LeaseLost, StoreUnreachable, ConfigurationError."""
    host = host or Host()
    launch = Launch(plan, opener, emit, host, pinger)
    open_store = partial(opener.for_heartbeat, partial(Budget, HEARTBEAT_BUDGET, host))
    heartbeat = host.start_heartbeat(launch.progress, open_store, on_launch_death)
    first_window = launch.window
    try:
        host.watch(launch.end, launch.outlived)
    except RuntimeError:  # the system refuses another thread
        heartbeat.stop()
        raise
    holds = False
    try:
        group, work = prepare()
        holds = launch.take_lease(group, heartbeat)
        if launch.window != first_window:
            host.watch(launch.end, launch.outlived)
        launch.end.when_longer = partial(host.extend, launch.end)
        if holds:
            launch.work(work)
        else:
            launch.leave(group.role)
    finally:
        host.expect_exit()
        if not holds or launch.released:
            heartbeat.stop()
        # Otherwise the store did not answer: the heartbeat retries the release.


# Descriptions of the holders of a lease, which a launch reads if it finds the lease held


def _is_gone(holder: bytes, host: Host) -> bool:
    """Whether the launch and the heartbeat of ``holder`` are known to have ended."""
    found = _read(holder)
    namespace, births = found.get("namespace"), found.get("births")
    if not isinstance(namespace, str) or not isinstance(births, dict):
        return False
    return all(isinstance(birth, str) for birth in births.values()) and host.all_gone(namespace, births)


def _projects_beside(facts: Mapping[str, Any], holders: Iterable[bytes]) -> list[str]:
    """The configurations of those ``holders`` that belong to other projects on the same host. ``facts``: this launch's,
    see `LaunchProgress.facts`. Another project has another configuration and other handlers; a new version of the same
    project has at least one of the two in common."""
    found = set[str]()
    for each in map(_read, holders):
        match each.get("config"), each.get("handlers"):
            case str(config), str(handlers) if config and handlers and each.get("host") == facts["host"]:
                if config != facts["config"] and handlers != facts["handlers"]:
                    found.add(config)
    return sorted(found)


def _read(holder: bytes) -> dict[str, Any]:
    """A holder's description, see `LaunchProgress.description`. Empty if it is corrupt, or of another version."""
    return json_values.object_in(holder) or {}
