"""The process that keeps a lease while its launch works, and releases it if the launch dies without releasing it.

It is a process and not a thread because a handler may hold the interpreter's lock for as long as it likes: a regular
expression that ran for 4.8 s kept a thread from renewing for 4.9 s. It is forked before the launch has a connection or
a second thread, the one moment at which a fork is safe, and costs a millisecond instead of another interpreter.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from pollconsumer.core.errors import LeaseLost, PollConsumerError, StoreRefused, StoreUnreachable, shown
from pollconsumer.core.text import printable
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.process import boot_time, is_stopped
from pollconsumer.runtime.launch.progress import EMPTIED, LOST, Held, Identity, Progress
from pollconsumer.runtime.launch.signals import SIGNALS
from pollconsumer.store.leases import RENEW_EVERY, TRUSTED_FOR, Acquired, Leases
from pollconsumer.store.own_descriptors import Opened
from pollconsumer.store.redis_store import RedisStore
from pollconsumer.store.reservations import Buried, Holder

RETRY_EVERY = 1.0
"""Seconds between attempts to renew while the server does not answer."""

FAREWELL = 2.0
"""Seconds in which the lease of a launch that died at its hard end must have been given back."""

MOST_NAMED = 3
GONE = "the heartbeat process is gone; the next launch goes on"

OpenStore = Callable[[], tuple[Leases, RedisStore]]


class Tenure(NamedTuple):
    """Who holds which lease. ``waited``: seconds from the launch's start until it had it. On the boot clock: when it
    was ``asked`` for, ``since`` when it is held, and the ``hard_end`` at which its watchdog ends the launch."""

    identity: Identity
    acquired: Acquired
    waited: float
    asked: float
    since: float
    hard_end: float


class Heartbeat:
    """The launch's side of it."""

    def __init__(
        self, progress: Progress, open_store: OpenStore, on_launch_death: Callable[[int], None] | None = None
    ) -> None:
        """Forks. ``open_store`` is called in the new process: nothing open is shared with it but the progress; and
        there ``on_launch_death`` is called, with its number, when the launch dies, before its lease is given back."""
        orders, inlet = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
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

    def hold(self, tenure: Tenure) -> None:
        """Begin to renew. LeaseLost where the process is gone: it may be killed while the user's modules are
        imported."""
        self._progress.trust_until(tenure.asked + TRUSTED_FOR)
        identity, acquired, *times = tenure
        order = json.dumps([identity, acquired.holder, acquired.slot, acquired.at, *times])
        try:
            if not self._inlet.is_open():  # a module has closed it; the process has it open, too
                self._inlet = Opened.now(os.open(f"/proc/{self._pid}/fd/{self._outlet}", os.O_WRONLY))
            os.write(self._inlet.number, order.encode() + b"\n")
        except OSError:
            raise LeaseLost("lease not renewed", None, GONE) from None

    def is_alive(self) -> bool:
        """Whether it is there and runs."""
        if not self._stopped:
            try:
                self._stopped = os.waitpid(self._pid, os.WNOHANG)[0] != 0
            except ChildProcessError:  # a handler waited for it
                self._stopped = True
        return not self._stopped and not is_stopped(self._pid)

    def stop(self) -> None:
        """End it at once: the launch holds no lease, or has released it."""
        if not self._stopped:
            self._stopped = True
            os.kill(self._pid, signal.SIGKILL)
            self._inlet.close()
            with suppress(OSError):  # a handler may have waited for what it did not start
                os.waitpid(self._pid, 0)


def _beat(
    pipe: tuple[int, int],
    parent: int,
    progress: Progress,
    open_store: OpenStore,
    on_launch_death: Callable[[int], None] | None,
) -> None:
    for number in SIGNALS:
        # A terminal or a platform signals the whole group: the launch decides, its heartbeat follows.
        signal.signal(number, signal.SIG_IGN)
    orders, inlet = pipe
    # A process that a module or a handler forked keeps the pipe open, and either may close what it did not open: so the
    # launch itself is watched, where the system can.
    ends = [orders]
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            ends = [os.pidfd_open(parent)]
    if orders in ends:
        os.close(inlet)
    order = _await_order(orders, ends)
    if not order and progress.ended()[0] is None and _leaves(parent):
        _tell("error: launch died: before it had the lease, importing its modules or waiting")
    if order:
        identity, holder, slot, at, *times = json.loads(order)
        tenure = Tenure(Identity(*identity), Acquired(Holder(*holder), slot, at), *times)
        leases, store = open_store()
        _keep(ends, parent, progress, leases, tenure)
        try:
            if on_launch_death is not None:
                on_launch_death(parent)
        finally:
            if progress.trusted_until() != EMPTIED:
                _bury(progress, leases, store, tenure)


def _await_order(orders: int, ends: list[int]) -> bytes:
    """What the launch sends when it has the lease; nothing where it is gone before."""
    order = b""
    while not order.endswith(b"\n"):
        if orders not in select.select([orders, *ends], [], [])[0] or not (part := os.read(orders, 65536)):
            return b""
        order += part
    return order


def _leaves(parent: int) -> bool:
    """Whether the launch, which closed its pipe, is about to be gone: a module may close what it did not open."""
    until = time.monotonic() + RETRY_EVERY
    while os.getppid() == parent:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _keep(ends: list[int], parent: int, progress: Progress, leases: Leases, tenure: Tenure) -> None:
    """Renew until the launch is gone. Where its lease is another's, it may be there for a while, not knowing yet."""
    identity, acquired, pause, lost = tenure.identity, tenure.acquired, 0.0, False
    while not select.select(ends, [], [], pause)[0] and os.getppid() == parent:
        asked, pause = boot_time(), RETRY_EVERY
        # A suspended launch must lose its lease as a frozen machine would: it cannot tell how long it was away. And
        # what is there beyond the hard end is another program, which a handler made of the launch.
        if lost or is_stopped(parent) or asked > tenure.hard_end + FAREWELL:
            continue
        entry = identity.entry(acquired, tenure.waited, asked - tenure.since, progress)
        with suppress(PollConsumerError):
            held = leases.renew(acquired.holder, identity.role, identity.launch, identity.description(), entry)
            if held:
                progress.trust_until(asked + TRUSTED_FOR)
                pause = RENEW_EVERY
            else:
                progress.trust_until(EMPTIED if held is None else LOST)
                lost = True


def _bury(progress: Progress, leases: Leases, store: RedisStore, tenure: Tenure) -> None:
    """The launch is gone without having stopped its heartbeat. Release what it held, and close its ledger entry: that
    is written where the lease is another's by now, too.

    What it was handling is charged with the attempt and the death; what had ended and was not settled, with the attempt
    alone; what it had merely reserved, with neither.
    """
    identity, acquired, held = tenure.identity, tenure.acquired, boot_time() - tenure.since
    left_behind = progress.flight.left_behind()
    if progress.ended()[0] is None:
        _say(left_behind)
        # The watchdog that needs no interpreter cannot leave a note; the time at which it strikes is one.
        struck = boot_time() >= tenure.hard_end
        progress.end(*((StopReason.WATCHDOG, 1) if struck else (StopReason.DIED, -1)))
    entry = identity.entry(acquired, tenure.waited, held, progress)
    until = max(tenure.hard_end, boot_time() + FAREWELL)
    while boot_time() < until:
        try:
            for queue in identity.queues:
                here = [message for message in left_behind if message.queue == queue]
                in_hand = [message.id for message in here if not message.ended and not message.last]
                ended = [message.id for message in here if message.ended and not message.last]
                spent = [message.id for message in here if message.last]
                # Another recovers it; or the launch had left the queue out, or died before it announced itself there.
                with suppress(LeaseLost, StoreRefused):
                    store.give_up(acquired.holder, queue, in_hand, ended, spent, bury=_say_death)
            leases.release(acquired.holder, identity.role, identity.launch, entry)
            return
        except StoreUnreachable:
            time.sleep(RETRY_EVERY)
        except PollConsumerError:  # no further attempt can help: the lease lapses by itself
            return


def _say_death(buried: Buried) -> None:
    """Of what the death of its launch made a dead letter."""
    message, problem = buried
    what = f"{shown(message.name)} ({message.handler}), attempt {message.attempt}: {problem}"
    _tell(f"warning: dead letter: {printable(what)}")


def _say(left_behind: list[Held]) -> None:
    """One line about a launch that could not say it itself."""
    in_hand = [message for message in left_behind if not message.ended]
    shown_ids = [
        f"{shown(message.id.decode('utf-8', 'replace'))} ({message.handler})" for message in in_hand[:MOST_NAMED]
    ]
    if len(in_hand) > MOST_NAMED:
        shown_ids.append(f"{len(in_hand) - MOST_NAMED} more")
    what = f"while handling {', '.join(shown_ids)}" if in_hand else "with nothing in hand"
    _tell(f"error: launch died: {printable(what)}; the next launch goes on")


def _tell(line: str) -> None:
    with suppress(OSError):
        os.write(2, f"pollconsumer: {line}\n".encode())
