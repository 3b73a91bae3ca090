"""Launches without a process: no signals, no heartbeat, no watchdog; a lease that is held for as long as they last."""

from __future__ import annotations

import asyncio
import secrets
import signal
from typing import TYPE_CHECKING

from pollconsumer.core.retry import Fatal, RetryIn, Yield
from pollconsumer.core.window import Window
from pollconsumer.runtime.handling.arguments import BadArguments
from pollconsumer.runtime.handling.executor import InlineExecutor
from pollconsumer.runtime.launch.frame import HeldLaunch, Launch, LaunchPlan
from pollconsumer.runtime.launch.heartbeat import Heartbeat, Tenure
from pollconsumer.runtime.launch.process import boot_time
from pollconsumer.runtime.launch.progress import Identity
from pollconsumer.store.leases import Acquired, Group, Leases

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.events import Event
    from pollconsumer.interface.testing.clock import VirtualClock
    from pollconsumer.interface.testing.memory import MemoryOpener
    from pollconsumer.runtime.handling.executor import Handled
    from pollconsumer.runtime.launch.signals import Interruption

CONSUMER, MOVER = Group("consumer", (), 1), Group("mover", (), 1)
FORESEEN = (Fatal, RetryIn, Yield)
ENDS_A_HANDLER = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
"""Anything else that a handler raises, Ctrl-C and pytest's own outcomes, is meant for who runs the test."""


class NoHeartbeat(Heartbeat):
    def __init__(self) -> None:
        """Nothing is forked: nothing can happen to a launch under test that it would not see."""

    def hold(self, tenure: Tenure) -> None:
        """The lease is there for as long as the launch is."""

    def is_alive(self) -> bool:
        return True

    def stop(self) -> None:
        return


def hold(
    opener: MemoryOpener, group: Group, seconds: float, clock: VirtualClock, emit: Callable[[Event], None]
) -> HeldLaunch:
    """A launch with a window of so many seconds from now on, that holds the lease of its group."""
    plan = LaunchPlan(seconds, grace=0.0, baton=False, next_launches=None)
    launch = Launch(plan, opener, emit, window=Window(clock(), clock() + seconds), clock=clock)
    launch.progress.trust_until(float("inf"))
    wire = opener.wire(launch.patience)
    leases = Leases(wire, opener.namespace)
    identity = Identity(secrets.token_hex(8), group.role, group.queues, "testing", 0)
    entry = identity.entry(None, 0.0, 0.0, launch.progress)
    acquired = leases.acquire(group, identity.launch, identity.description(), entry)
    assert isinstance(acquired, Acquired), "one launch at a time"
    began = boot_time()
    tenure = Tenure(identity, acquired, 0.0, began, began, float("inf"))
    return HeldLaunch(launch, wire, leases, tenure, NoHeartbeat())


def interrupt(interruption: Interruption) -> None:
    """As a signal would."""
    interruption.signal = signal.SIGTERM


class WatchedExecutor(InlineExecutor):
    """Ends its launch when a handler raised what is meant for the test: ``raised`` from then on."""

    def __init__(self, clock: VirtualClock, interruption: Interruption, *, raising: bool) -> None:
        super().__init__(clock)
        self.raised: BaseException | None = None
        self._interruption, self._raising = interruption, raising

    def finished(self) -> list[Handled]:
        finished = super().finished()
        for handled in finished:
            if self._is_meant_for_the_test(handled):
                self.raised = handled.outcome.error
                interrupt(self._interruption)
        return finished

    def _is_meant_for_the_test(self, handled: Handled) -> bool:
        error, handler = handled.outcome.error, handled.attempt.handler
        if error is None or not isinstance(error, ENDS_A_HANDLER):
            return error is not None
        foreseen = isinstance(error, (*FORESEEN, *handler.fatal)) and not isinstance(error, BadArguments)
        return self._raising and not foreseen
