"""The process that renews a lease while its launch works. If the launch dies, this process requeues the launch's
messages and releases the lease.

It is a process and not a thread, because a handler may hold the GIL: a regular expression that ran for 4.8 s kept a
thread from renewing for 4.9 s. It is forked before the launch has a connection or a second thread, the only time at
which a fork is safe. A fork takes a millisecond; starting a new interpreter would take longer.

Between renewals it listens for requests to stop messages in flight, and for pauses of the launch's handlers. A blocking
read on a second connection waits for a key with the launch's fence in its name. So an idle launch costs the store one
command for each renewal. Requests reach the launch through shared memory and a signal, since its only thread may be
busy in a handler."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from pollconsumer.core.errors import LeaseLost, PollConsumerError, StoreRefused, StoreUnreachable, shown
from pollconsumer.core.notation.text import printable
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.board import EMPTIED, LOST, ROLLED_BACK, Flight, LaunchProgress, LongRunning
from pollconsumer.runtime.launch.launch_end import LaunchEnd, while_what
from pollconsumer.runtime.system import standard_error
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.runtime.system.process import is_stopped
from pollconsumer.runtime.system.signals import CALL, SIGNALS
from pollconsumer.store.client.own_descriptors import Opened
from pollconsumer.store.client.patience import SYSTEM_CLOCKS, Budget, Clocks
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.leases import RENEW_EVERY, TRUSTED_FOR, Leases
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim, DeadLetter
from pollconsumer.store.records.rows import id_text
from pollconsumer.store.suitability import went_back

FIRST_AFTER = 0.5
"""Seconds from taking the lease until the heartbeat listens. A shorter launch is not worth a connection."""
BLOCK = 60.0
"""Seconds that one blocking read lasts. If its connection was lost meanwhile, the next read opens another one."""
ANSWER_WITHIN = 0.5
"""Seconds within which the server must answer the listening connection, so that it does not delay a renewal."""
STUBBORN_AFTER = 15.0
"""Seconds after a request to stop. By then every handler that can be interrupted has ended."""
STILL_RUNNING_EVERY = 60.0
"""Seconds between signs of life: after WEBJOBS_IDLE_TIMEOUT, by default 120 s, Azure kills a silent and idle WebJob."""
REPORT_LINE_WITHIN = 0.2
"""Seconds that a line, and with it the next renewal, waits for a slow reader of the output."""
RETRY_EVERY = 1.0
"""Seconds between attempts to renew or to release while the store does not answer."""
WITHOUT_WATCHDOG_AFTER = 1.0
"""Seconds after the launch's hard end. If its watchdog has not ended it by then, the heartbeat kills it."""
RELEASE_BUDGET = 2.0
"""Seconds after a launch's death to try to release its lease. The tries go on until the hard end at least."""
LOOK_EVERY = 0.4
"""Seconds between looks at the messages in flight. A message that is seen twice is written to the ledger, within a
second of its beginning."""
MOST_REPORTED = 256
"""The most long-running messages that are reported. A launch has at most so many slots."""
GONE = "the heartbeat process is gone; the next launch goes on"
ReportLine = Callable[[str], None]
OpenStore = Callable[[], "tuple[Leases, RedisStore, Wire]"]
"""Opens the store in the heartbeat's process. The connection that it returns last is for blocking commands."""


class StopListener:
    def __init__(
        self, pid: int, progress: LaunchProgress, wire: Wire, keys: Keys, fence: str, queues: Sequence[str],
        report_line: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._pid, self._progress, self._wire, self._report_line = pid, progress, wire, report_line
        wire.patience = lambda: Budget(ANSWER_WITHIN)
        self._markers = [f"{keys.queue(queue, 'stop_marker')}:{fence}" for queue in queues]
        self._requests = {queue: keys.queue(queue, "stops") for queue in queues}
        self._pauses = keys.control("paused_handlers")
        self._paused: set[bytes] | None = None
        """Names of the paused handlers that the launch was given last; None before the first time."""
        self._blocked = False
        self._attend_at = time.monotonic() + FIRST_AFTER
        self._asked: dict[tuple[str, bytes], float] = {}
        """For each request to stop, by queue and id: when it was passed to the launch, on the monotonic clock. Infinity
        after a warning that its message goes on."""

    def wait(self, wait: Callable[[float, int | None], bool], seconds: float) -> bool:
        """Wait at most ``seconds`` for the launch's end, and pass on requests. Returns whether the launch has ended.
        ``wait`` only waits: for so many seconds, for the launch's end, or until a descriptor is readable."""
        if not self._markers:  # of a mover, which has none
            return wait(seconds, None)
        self._report()
        until = time.monotonic() + seconds
        while True:
            end = min(until, time.monotonic() + self._wire.look_every if self._blocked else self._attend_at)
            if wait(max(0.0, end - time.monotonic()), self._wire.fileno() if self._blocked else None):
                return True
            now = time.monotonic()
            if now >= until and (self._blocked or now < self._attend_at):
                return False
            with suppress(PollConsumerError, Unanswered):
                self._attend()
                continue
            self._wire.close()
            self._blocked = False
            self._attend_at = time.monotonic() + FIRST_AFTER

    def _attend(self) -> None:
        if self._blocked and self._wire.readable(0.0):
            self._blocked = False
            self._wire.receive([()])
        if not self._blocked:
            self._pass_on()
            self._wire.send([("BLPOP", *self._markers, BLOCK)])
            self._blocked = True

    def _pass_on(self) -> None:
        *answers, pauses = self._wire.once([("HGETALL", key) for key in (*self._requests.values(), self._pauses)])
        if (paused := set(pauses[::2])) != self._paused:
            self._progress.stops.pause(paused)  # GUARD told of pauses
            self._paused = paused
        found = {(queue, each) for queue, answer in zip(self._requests, answers, strict=True) for each in answer[::2]}
        for each in found - self._asked.keys():
            self._progress.stops.ask(each)
            self._asked[each] = time.monotonic()
            with suppress(OSError):
                os.kill(self._pid, CALL)
        for each in self._asked.keys() - found:
            del self._asked[each]

    def _report(self) -> None:
        """Warn once about each message that goes on long after it was asked to stop."""
        overdue = {each for each, at in self._asked.items() if time.monotonic() - at >= STUBBORN_AFTER}
        for held in self._progress.flight.left_behind() if overdue else []:
            if (held.queue, held.id) in overdue and not held.ended:
                name = f"{shown(held.id.decode('utf-8', 'replace'))} ({held.handler})"
                why = "its code blocks in a thread, or swallows the interruption"
                self._report_line(
                    f"warning: not stopped: {printable(name)}, {STUBBORN_AFTER:g}s after it was asked to: {why}"
                )
        for each in overdue:
            self._asked[each] = float("inf")


class Parent:
    """The launch, as its heartbeat sees it. ``ends``: descriptors that become readable when the launch dies."""

    killed = False
    """Whether the heartbeat has killed the launch."""

    def __init__(self, pid: int, ends: list[int], listening: StopListener) -> None:
        self._pid, self._ends, self._listening = pid, ends, listening

    def ends_within(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the launch's end. Returns whether the launch has ended."""
        return self._listening.wait(self._ends_by, seconds)

    def _ends_by(self, seconds: float, descriptor: int | None) -> bool:
        watched = self._ends if descriptor is None else [*self._ends, descriptor]
        ready = select.select(watched, [], [], seconds)[0]
        return any(each in self._ends for each in ready) or os.getppid() != self._pid

    def is_suspended(self) -> bool:
        return is_stopped(self._pid)

    def call(self) -> None:
        """Have the launch interrupt a handler whose limit has passed."""
        with suppress(OSError):
            os.kill(self._pid, CALL)

    def kill(self) -> None:
        """Kill the launch by a signal at which faulthandler logs its stacks. Used if a handler holds the GIL, so that
        the launch's watchdog cannot end it. Nothing is killed if another program has replaced the launch (exec)."""
        with suppress(OSError):
            if os.readlink(f"/proc/{self._pid}/exe") == os.readlink("/proc/self/exe"):  # noqa: PTH115  as text
                os.kill(self._pid, signal.SIGABRT)
                self.killed = True


class Heartbeat:
    """A launch's heartbeat process, as the launch sees it."""

    pid: int

    def __init__(
        self, progress: LaunchProgress, open_store: OpenStore, on_launch_death: Callable[[int], None] | None = None
    ) -> None:
        """Fork the heartbeat, which shares only ``progress``. It calls ``open_store`` once the launch has the lease. If
        the launch dies, it calls ``on_launch_death`` with the launch's pid, then releases the lease."""
        orders, inlet = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                _beat((orders, inlet), parent, progress, open_store, on_launch_death)
                code = 0
            finally:
                os._exit(code)
        os.close(orders)
        self._inlet, self._outlet = Opened.now(inlet), orders
        self._progress = progress
        self._stopped = False

    def hold(self, claim: Claim, end: LaunchEnd) -> None:
        """Have the heartbeat renew the lease. Raises LeaseLost if the heartbeat is dead: it may have been killed while
        the launch imported the user's modules."""
        progress = self._progress
        order = json.dumps([claim, progress.facts, progress.waited, progress.since, end.stop_before, end.grace])
        try:
            if not self._inlet.is_open():  # a module closed it; the heartbeat has a copy
                self._inlet = Opened.now(os.open(f"/proc/{self.pid}/fd/{self._outlet}", os.O_WRONLY))
            os.write(self._inlet.number, order.encode() + b"\n")
        except OSError:
            raise LeaseLost("lease not renewed", None, GONE) from None

    def is_alive(self) -> bool:
        """Whether the heartbeat is alive and not suspended."""
        if not self._stopped:
            try:
                self._stopped = os.waitpid(self.pid, os.WNOHANG)[0] != 0
            except ChildProcessError:  # a handler reaped it
                self._stopped = True
        return not self._stopped and not is_stopped(self.pid)

    def stop(self) -> None:
        """Kill the heartbeat. The caller holds no lease, or has released it."""
        if not self._stopped:
            self._stopped = True
            os.kill(self.pid, signal.SIGKILL)
            self._inlet.close()
            with suppress(OSError):  # a handler may have reaped it
                os.waitpid(self.pid, 0)


class LongRunningWatch:
    """The heartbeat's view of the messages in flight. It finds those that take long, so that the ledger shows them.

    The launch itself tells the store when a handler began only after the handler has ended: a write at each beginning
    would take longer than many handlers do."""

    def __init__(self, flight: Flight, stop_before: float) -> None:
        """``stop_before``: the end of the launch's window, on the monotonic clock."""
        self._flight, self._stop_before = flight, stop_before
        self._since: dict[tuple[str, bytes], float] = {}
        """The instant, on the boot clock, at which each message in flight was first seen."""
        self._reported: set[tuple[str, bytes]] = set()
        self.long_running: list[LongRunning] = []
        """The messages that were in flight at the last two looks."""
        self.beyond = False
        """Whether the window was over at the last look."""
        self._late: set[tuple[str, bytes]] = set()
        """Messages whose limits had passed at the last call of `any_overdue`."""

    def look(self, now: float, monotonic: float) -> bool:
        """Look at the messages in flight. ``now`` is on the boot clock. Returns whether the ledger must be written
        early: a message that was already in flight at the previous look is unreported, or was reported before the
        window ended."""
        in_flight = {(each.queue, each.id): each for each in self._flight.left_behind() if not each.ended}
        self._since = {each: self._since.get(each, now) for each in in_flight}
        long_running = {each: since for each, since in self._since.items() if since < now}
        self.long_running = [
            (each.handler, each.queue, id_text(each.id), long_running[key], now + each.ends_by - monotonic)
            for key, each in in_flight.items()
            if key in long_running
        ][:MOST_REPORTED]
        beyond, before = monotonic > self._stop_before, self.beyond
        unreported = long_running.keys() - (self._reported if beyond == before else ())
        self._reported, self.beyond = {*long_running}, beyond
        return bool(unreported)

    def any_overdue(self, now: float) -> bool:
        """Whether a message in flight has passed its limit since the last call. ``now``: on the monotonic clock."""
        late = {(each.queue, each.id) for each in self._flight.left_behind() if 0.0 < each.ends_by <= now}
        new, self._late = late - self._late, late
        return bool(new)


def keep(
    launch: Parent,
    progress: LaunchProgress,
    leases: Leases,
    claim: Claim,
    end: LaunchEnd,
    clocks: Clocks,
    report_line: ReportLine,
) -> None:
    """Renew the lease until the launch has ended. If the lease is lost before, only wait for the launch's end."""
    queues, pause, lost = progress.facts["queues"], 0.0, False
    watch = LongRunningWatch(progress.flight, end.stop_before)
    while not _ends_within(launch, pause, watch, end, clocks):
        asked, pause = clocks.boot_time(), RETRY_EVERY
        # A suspended launch must lose its lease, as a frozen machine would. If the process exists beyond the hard end,
        # it is another program, by which a handler has replaced the launch (exec).
        if lost or launch.is_suspended() or clocks.monotonic() > end.hard_end() + RELEASE_BUDGET:
            continue
        entry = progress.entry(claim, asked, in_flight=watch.long_running, beyond=watch.beyond)
        with suppress(PollConsumerError):
            held = leases.renew(claim, entry)
            if leases.rollback is not None and held is not None:
                report_line(f"warning: {went_back(*leases.rollback)}")
                lost = leases.refuse_rollback
            if lost:
                progress.trust_until(ROLLED_BACK)
            elif held:
                progress.trust_until(asked + TRUSTED_FOR)
                pause = RENEW_EVERY
                if queues and clocks.monotonic() >= end.stop_before:
                    leases.extend_serving_markers(queues)
            else:
                progress.trust_until(EMPTIED if held is None else LOST)
                lost = True
    if launch.killed and progress.ended()[0] is not None:  # else `requeue_all` reports the kill
        report_line("error: watchdog: launch killed, it had ended but its process did not exit in time")


def _ends_within(launch: Parent, seconds: float, watch: LongRunningWatch, end: LaunchEnd, clocks: Clocks) -> bool:
    """Wait as `Parent.ends_within` does, but return False early if `LongRunningWatch.look` asks for a report. Meanwhile
    enforce the limits of messages and of the launch, since a handler may hold the launch's GIL."""
    until = clocks.monotonic() + seconds
    while True:
        if launch.ends_within(max(0.0, min(until - clocks.monotonic(), LOOK_EVERY))):
            return True
        if watch.any_overdue(clocks.monotonic()):
            launch.call()
        if clocks.monotonic() > end.hard_end() + WITHOUT_WATCHDOG_AFTER and not launch.is_suspended():
            launch.kill()
        if watch.look(clocks.boot_time(), clocks.monotonic()) or clocks.monotonic() >= until:
            return False


def requeue_all(
    progress: LaunchProgress,
    leases: Leases,
    store: RedisStore,
    claim: Claim,
    end: LaunchEnd,
    clocks: Clocks,
    report_line: ReportLine,
    leave_output: Callable[[], None] = lambda: None,
) -> None:
    """The launch died: requeue its messages, release its lease, and close its entry in the ledger, even if the lease
    was lost. ``leave_output`` is called before a wait for an unreachable store: it closes this process's output, so
    that no reader of it waits as well."""
    ended = clocks.boot_time()
    if progress.ended()[0] is None:
        struck = clocks.monotonic() >= end.hard_end()
        died = f"launch died: {while_what(progress.flight.left_behind())}"
        report_line(f"error: {end.what_resisted(clocks.monotonic()) if struck else died}; the next launch goes on")
        # The watchdog in C cannot record that it ended the launch, but the time shows it.
        progress.end(*((StopReason.WATCHDOG, 1) if struck else (StopReason.DIED, -1)))
    resisted = end.resisted(clocks.monotonic()) if progress.ended()[0] is StopReason.WATCHDOG else {}
    entry = progress.entry(claim, ended)
    until = max(end.hard_end(), clocks.monotonic() + RELEASE_BUDGET)
    while clocks.monotonic() < until:
        try:
            _requeue(progress, store, claim, report_line, resisted)
            leases.release(claim, entry)
            return
        except StoreUnreachable:
            leave_output()
            clocks.sleep(RETRY_EVERY)
        except PollConsumerError:  # no repetition can help: the lease expires by itself
            return


def _requeue(
    progress: LaunchProgress,
    store: RedisStore,
    claim: Claim,
    report_line: ReportLine,
    resisted: Mapping[tuple[str, bytes], str],
) -> None:
    """Requeue what a dead launch had reserved. Messages in flight are charged an attempt and a death. Messages whose
    handlers had ended, but were not settled, are charged an attempt. Other messages are charged nothing. ``resisted``:
    for messages that did not stop at their limits, by queue and id, the error to store."""

    def print_death(dead_letter: DeadLetter) -> None:
        message, problem = dead_letter
        what = f"{shown(message.name)} ({message.handler}), attempt {message.attempt}: {problem}"
        report_line(f"warning: dead letter: {printable(what)}")

    queues, left_behind = progress.facts["queues"], progress.flight.left_behind()
    lost = store.lost(queues)  # the next launch recovers the messages of these
    for queue in [each for each in queues if each not in lost]:
        here = [message for message in left_behind if message.queue == queue]
        in_flight = [message.id for message in here if not message.ended and not message.last]
        ended = [message.id for message in here if message.ended and not message.last]
        spent = [message.id for message in here if message.last]
        # Another launch recovers the queue. Or this launch had skipped it, or not announced itself there yet.
        with suppress(LeaseLost, StoreRefused):
            known = {name: why for (of, name), why in resisted.items() if of == queue}
            store.requeue(claim, queue, in_flight, ended, spent, on_dead_letter=print_death, known=known)


def _beat(
    pipe: tuple[int, int],
    parent: int,
    progress: LaunchProgress,
    open_store: OpenStore,
    on_launch_death: Callable[[int], None] | None,
) -> None:
    for number in SIGNALS:
        # A terminal or a platform signals the whole process group. The launch decides what to do.
        signal.signal(number, signal.SIG_IGN)
    if "WEBJOBS_RUN_ID" in os.environ:
        # Not in the launch, whose handlers may hold the GIL. In a thread, since a reader of the output may be slow.
        with suppress(RuntimeError):
            start_thread("output", _report_that_it_runs)
    orders, inlet = pipe
    # Processes that modules or handlers fork keep the pipe open, and may close it. So the launch itself is watched by
    # pidfd, if the system has them.
    ends = [orders]
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            ends = [os.pidfd_open(parent)]
    if orders in ends:
        os.close(inlet)
    order = b""  # sent when the launch has the lease; empty if it dies before
    while not order.endswith(b"\n"):
        if orders not in select.select([orders, *ends], [], [])[0] or not (part := os.read(orders, 65536)):
            order = b""
            break
        order += part
    if not order and progress.ended()[0] is None and _leaves(parent):
        _pass_on()
        report_line("error: launch died: before it had the lease, while importing modules or waiting")
    if order:
        held, progress.facts, progress.waited, progress.since, *end_fields = json.loads(order)
        claim, end = Claim(*held), LaunchEnd(progress.flight, *end_fields)
        leases, store, wire = open_store()
        listening = StopListener(parent, progress, wire, store.keys, claim.fence, progress.facts["queues"], report_line)
        keep(Parent(parent, ends, listening), progress, leases, claim, end, SYSTEM_CLOCKS, report_line)
        _pass_on()
        try:
            if on_launch_death is not None:
                on_launch_death(parent)
        finally:
            if progress.trusted[0] != EMPTIED:
                requeue_all(progress, leases, store, claim, end, SYSTEM_CLOCKS, report_line, standard_error.leave)


def _leaves(parent: int) -> bool:
    """Whether the launch exits within a second. If not, a module of the user's has closed the launch's pipe."""
    until = time.monotonic() + RETRY_EVERY
    while os.getppid() == parent:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _report_that_it_runs() -> None:
    seconds = 0.0
    while True:
        time.sleep(STILL_RUNNING_EVERY)
        seconds += STILL_RUNNING_EVERY
        report_line(f"info: still running after {seconds:g}s", output=1)


def report_line(line: str, output: int | None = None) -> None:
    with suppress(OSError):
        standard_error.write(f"pollconsumer: {line}\n".encode(), output, REPORT_LINE_WITHIN)


def _pass_on() -> None:
    with suppress(OSError):
        standard_error.pass_on(REPORT_LINE_WITHIN)
