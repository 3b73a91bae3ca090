"""The process that keeps a lease while its launch works, and gives it back when the launch dies without a word.

It is a process and not a thread because a handler may hold the interpreter's lock for as long as it likes: a regular
expression that ran for 4.8 s kept a thread from renewing for 4.9 s. It is forked before the launch has a connection or
a second thread, the one moment at which a fork is safe, and costs a millisecond instead of another interpreter.
"""

from __future__ import annotations

import json
import os
import select
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.interruption import SIGNALS
from pollconsumer.runtime.process import boot_time, is_stopped
from pollconsumer.runtime.progress import Identity, Progress
from pollconsumer.store.leases import RENEW_EVERY, TRUSTED_FOR, Acquired, Leases
from pollconsumer.store.redis_store import Holder

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_EVERY = 1.0
"""Seconds between attempts to renew while the server does not answer."""


class Heartbeat:
    """The launch's side of it."""

    def __init__(self, progress: Progress, open_leases: Callable[[], Leases]) -> None:
        """Forks. ``open_leases`` is called in the new process: nothing open is shared with it but the progress."""
        orders, self._orders = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                os.close(self._orders)
                _beat(orders, parent, progress, open_leases)
                code = 0
            finally:
                os._exit(code)
        os.close(orders)
        self._progress = progress
        self._stopped = False

    def hold(self, identity: Identity, acquired: Acquired, waited: float, asked: float, hard_end: float) -> None:
        """Begin to renew. ``asked`` is the boot time at which the lease was asked for, ``waited`` the seconds from the
        launch's start until then, ``hard_end`` the boot time at which its watchdog ends it."""
        self._progress.trust_until(asked + TRUSTED_FOR)
        order = json.dumps([identity, acquired.holder, acquired.slot, acquired.at, waited, asked, hard_end])
        os.write(self._orders, order.encode() + b"\n")

    def is_alive(self) -> bool:
        if not self._stopped:
            self._stopped = os.waitpid(self._pid, os.WNOHANG)[0] != 0
        return not self._stopped

    def stop(self) -> None:
        """End it at once: the launch has released the lease before, or could not, and then nor can its heartbeat."""
        if not self._stopped:
            self._stopped = True
            os.kill(self._pid, signal.SIGKILL)
            os.close(self._orders)
            os.waitpid(self._pid, 0)


def _beat(orders: int, parent: int, progress: Progress, open_leases: Callable[[], Leases]) -> None:
    for number in SIGNALS:
        # A terminal or a platform signals the whole group: the launch decides, its heartbeat follows.
        signal.signal(number, signal.SIG_IGN)
    with os.fdopen(orders, "rb", buffering=0) as pipe:
        order = pipe.readline()
        if order:
            identity, holder, slot, at, waited, asked, hard_end = json.loads(order)
            acquired = Acquired(Holder(*holder), slot, at)
            _keep(
                pipe.fileno(), parent, progress, open_leases(), Identity(*identity), acquired, waited, asked, hard_end
            )


def _keep(
    orders: int,
    parent: int,
    progress: Progress,
    leases: Leases,
    identity: Identity,
    acquired: Acquired,
    waited: float,
    asked: float,
    hard_end: float,
) -> None:
    holder, began, pause = acquired.holder, asked, 0.0
    while not select.select([orders], [], [], pause)[0]:
        asked = boot_time()
        if is_stopped(parent):
            # A suspended launch must lose its lease as a frozen machine would: it cannot tell how long it was away.
            pause = RETRY_EVERY
            continue
        entry = identity.entry(acquired, waited, asked - began, progress)
        try:
            held = leases.renew(holder, identity.role, identity.launch, identity.description(), entry)
        except PollConsumerError:
            pause = RETRY_EVERY
            continue
        if not held:
            progress.trust_until(-1.0)
            return
        progress.trust_until(asked + TRUSTED_FOR)
        pause = RENEW_EVERY
    _bury(identity, acquired, waited, boot_time() - began, hard_end - began, progress, leases)


def _bury(
    identity: Identity,
    acquired: Acquired,
    waited: float,
    held: float,
    most: float,
    progress: Progress,
    leases: Leases,
) -> None:
    """The launch is gone. One that said goodbye has noted why; for one that did not, release what it held."""
    reason, code = progress.ended()
    if reason is not None and reason is not StopReason.WATCHDOG and reason is not StopReason.DIED:
        return
    if reason is None:
        # The watchdog that needs no interpreter cannot leave a note; the time at which it strikes is one.
        reason, code = (StopReason.WATCHDOG, 1) if held >= most else (StopReason.DIED, -1)
        progress.end(reason, code)
    with suppress(PollConsumerError):
        leases.release(
            acquired.holder, identity.role, identity.launch, identity.entry(acquired, waited, held, progress)
        )
