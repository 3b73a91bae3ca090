"""How a primary is replaced. Each returns once another server is the primary."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.failovers.servers import await_true

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.failovers.servers import Server, Trio

FAILOVER = ("FAILOVER", "TIMEOUT", 2000)


def kill(trio: Trio) -> None:
    replaced(trio, lambda: trio.primary().kill()).start()


def suspend(trio: Trio) -> None:
    before = replaced(trio, lambda: trio.primary().process.send_signal(signal.SIGSTOP))
    before.process.send_signal(signal.SIGCONT)


def switch(trio: Trio) -> None:
    trio.fail_over()


def coordinated(trio: Trio) -> None:
    """Sentinels have the primary hand over to a replica that has everything."""
    trio.fail_over("COORDINATED")


def failover(trio: Trio) -> None:
    """The primary hands over by itself. Sentinels take it for dead, and promote a replica of theirs."""
    replaced(trio, lambda: _hand_over(trio.primary()))


def unwatched(trio: Trio) -> None:
    """The primary hands over, and whoever had it do so has the other replica follow the new one."""
    before = replaced(trio, lambda: _hand_over(trio.primary()))
    primary = trio.primary()
    for server in trio.servers:
        if server not in (before, primary):
            server.ask("REPLICAOF", primary.address, primary.port)


def cut(trio: Trio) -> None:
    """Nobody reaches it, while it goes on; later what was sent to it arrives."""
    before = trio.primary()
    replaced(trio, lambda: before.cut_off(True)).cut_off(False)


BY_NAME: dict[str, Callable[[Trio], None]] = {
    each.__name__: each for each in (kill, suspend, switch, coordinated, failover, unwatched, cut)
}


def _hand_over(primary: Server) -> None:
    """Ask it again where it gave up, since no replica had everything in time."""

    def done() -> bool:
        if primary.is_primary():
            primary.ask(*FAILOVER)
        return not primary.is_primary()

    await_true(done)


def replaced(trio: Trio, act: Callable[[], object]) -> Server:
    """The primary that was replaced by what ``act`` does."""
    before = trio.primary()
    act()
    await_true(lambda: trio.primary() is not before)
    await_true(lambda: trio.primary().is_primary())
    return before
