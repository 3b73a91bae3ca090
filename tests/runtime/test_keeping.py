"""A heartbeat whose store goes back to an earlier state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import WentBack
from pollconsumer.runtime.launch.board import ROLLED_BACK, LaunchProgress
from pollconsumer.runtime.launch.heartbeat import Parent, keep
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.runtime.system.own_files import OwnFiles
from pollconsumer.store.client.patience import SYSTEM_CLOCKS, Clocks
from pollconsumer.store.leases import RENEW_EVERY, Group, Leases
from pollconsumer.store.records.reservations import Claim
from tests.conftest import NAMESPACE

if TYPE_CHECKING:
    from pathlib import Path

    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server

FENCES = f"{{{NAMESPACE}}}:fences"
LASTS = 4 * RENEW_EVERY


class Restoring(Clocks, Parent):
    """A launch that lasts for a few renewals, and its clocks, which go on as it is waited for; after the first renewal,
    the store's mark is that of an hour ago."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._passed = wire, 0.0

    def ends_within(self, seconds: float) -> bool:
        if seconds and not self._passed:
            self._wire.command("HINCRBY", FENCES, "mark", -3_600_000)
        self._passed += seconds
        return self._passed > LASTS

    def monotonic(self) -> float:
        return SYSTEM_CLOCKS.monotonic() + self._passed

    def boot_time(self) -> float:
        return SYSTEM_CLOCKS.boot_time() + self._passed

    def is_suspended(self) -> bool:
        return False

    def call(self) -> None:
        raise AssertionError("nothing is in hand")

    kill = call


def beat(wire: Wire, *, refuse: bool) -> tuple[LaunchProgress, list[str]]:
    """What it left for its launch, and what it said."""
    leases, progress, said = Leases(wire, NAMESPACE, refuse_rollback=refuse), LaunchProgress(), list[str]()
    acquired = leases.acquire(Group("mover", (), 1), "one", "{}", "{}")
    assert isinstance(acquired, Claim)
    progress.facts = {"queues": ()}
    end = LaunchEnd(progress.flight, SYSTEM_CLOCKS.monotonic() + 50.0, 10.0)
    launch = Restoring(wire)
    keep(launch, progress, leases, acquired, end, launch, said.append)
    return progress, said


def test_it_says_so_once_and_the_launch_goes_on(valkey: Server) -> None:
    progress, said = beat(valkey.wire(), refuse=False)
    (line,) = said
    assert line.startswith("warning: store rolled back: it had reached ")
    assert progress.trusted[0] > SYSTEM_CLOCKS.boot_time()


def test_where_that_is_to_be_refused_its_launch_is_told(valkey: Server) -> None:
    progress, said = beat(valkey.wire(), refuse=True)
    assert len(said) == 1
    assert progress.trusted[0] == ROLLED_BACK


def test_what_a_launch_refused_later_ones_refuse_and_its_end_does_not_accept_it(valkey: Server, tmp_path: Path) -> None:
    files = OwnFiles([tmp_path])

    def opener() -> StoreOpener:
        return StoreOpener(valkey.url, NAMESPACE, print, files, refuse_rollback=True)

    first = opener()
    with pytest.raises(WentBack, match="store rolled back while it was used; see what is missing"):
        first.rollback.refuse("store rolled back while it was used")
    first.rollback.note(valkey.wire())
    with pytest.raises(WentBack, match="store rolled back while it was used"):
        opener().wire(valkey.wire().patience).command("PING")
    opener().memo.forget()
    opener().wire(valkey.wire().patience).command("PING")
