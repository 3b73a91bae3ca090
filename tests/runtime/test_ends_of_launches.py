"""Why a launch is recorded to have ended whose work raised an error, and with which exit code."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pollconsumer.core.errors import (
    ConfigurationError,
    LeaseLost,
    NodeLost,
    PermissionDenied,
    StoreRefused,
    StoreUnreachable,
    WentBack,
)
from pollconsumer.interface.memory_store import MemoryOpener, VirtualClock
from pollconsumer.interface.sandbox import SandboxLaunch
from pollconsumer.runtime.launch.launch import LaunchPlan
from pollconsumer.runtime.system.own_threads import NO_THREAD
from pollconsumer.store.leases import Group
from pollconsumer.store.reading.ledger import launches_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.core.events import Event


class Ending:
    """A launch in memory, whose process goes on."""

    def __init__(self) -> None:
        clock = VirtualClock(datetime(2026, 11, 29, tzinfo=UTC))
        self.opener = MemoryOpener("ending", clock)
        self.opener.rollback = SimpleNamespace(note=lambda _: None)  # type: ignore[attr-defined]  # of a launch's own
        self.told: list[Event] = []
        plan, group = LaunchPlan(60.0, 10.0), Group("consumer", ("mail",), 1)
        self.launch = launch = SandboxLaunch(self.opener, group, plan, clock, self.told.append)
        ignore: Any = lambda *_: None  # noqa: E731
        host: Any = SimpleNamespace(at_exit=ignore, leave_by=ignore)
        heartbeat: Any = SimpleNamespace(hold=ignore)
        launch._host, launch._heartbeat, launch._asked = host, heartbeat, 0.0  # noqa: SLF001  as take_lease sets them

    def recorded(self) -> tuple[str, int]:
        (entry,) = launches_of(self.launch.store.wire, self.launch.store.keys, 10)
        return entry["stop_reason"], entry["exit_code"]


@pytest.fixture
def ending() -> Iterator[Ending]:
    ending = Ending()
    yield ending
    ending.opener.close()


@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        (LeaseLost("lease lost"), "lease_lost", 75),
        (StoreUnreachable("store unreachable"), "store_unreachable", 69),
        (NodeLost("store unreachable"), "store_unreachable", 69),
        (StoreRefused("store emptied while it was used"), "failed", 78),
        (WentBack("store went back"), "failed", 78),
        (PermissionDenied("not permitted"), "failed", 77),
        (ConfigurationError("handlers", "nowhere"), "failed", 78),
        (MemoryError(), "failed", 78),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "failed", 78),
        (RuntimeError(NO_THREAD), "failed", 78),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "failed", 73),
        (OSError(errno.ENFILE, os.strerror(errno.ENFILE)), "failed", 73),
        (ZeroDivisionError(), "failed", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_is_recorded_with_its_reason_and_the_exit_code_of_its_command(
    ending: Ending, error: Exception, reason: str, code: int
) -> None:
    def fail(_: object) -> NoReturn:
        raise error

    with pytest.raises(type(error)):
        ending.launch.work(fail)
    assert ending.recorded() == (reason, code)
