"""A server whose clock shows the first day of 1970, as a device's before it has asked for the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.lifecycle import State
from pollconsumer.dashboard.page_reader import PageReader, PastSpan
from pollconsumer.interface.memory_store import DirectConnection
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.store import Store
from tests.as_set import expected_as_set
from tests.leaving_out import long
from tests.simulation import installation, stepping
from tests.simulation.hosts import server
from tests.simulation.installation import NAMESPACE, SCRIPTS
from tests.simulation.stepping import Step, Stepping
from tests.simulation.story import tell

if TYPE_CHECKING:
    from tests.fast_fakeredis.store import FastStore

SCORED = ("n", "s", "f", "vr", "x", "batch_instants", "recurrences_ended", "nz")
"""Suffixes of sorted sets by instants."""


@pytest.fixture(params=[0.001, 5.0, 12 * 3600.0], autouse=True)
def begins(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """What the server's clock shows when true time is 0, in seconds since the epoch."""
    seconds: float = request.param
    for module in (server, installation, stepping):
        monkeypatch.setattr(module, "BEGINS", seconds)
    return seconds


def wire_to(store: FastStore) -> Wire:
    connect = lambda: DirectConnection(store.execute)  # noqa: E731  said in place
    return Wire("memory:", lambda: Budget(60.0), connect=connect, scripts=SCRIPTS)


@pytest.mark.parametrize("seed", [1, *map(long, range(2, 6))])
def test_every_promise_holds_by_a_clock_of_the_first_day(seed: int) -> None:
    report = tell(seed, faults=0, minutes=2)
    assert (report.violations, bool(report.executions)) == ([], True)


def test_recurrences_and_rates_go_on_and_no_instant_is_negative() -> None:
    ran = Stepping(1, Step(0.0, 120.0, alone=True)).run()
    assert ran.judge() == []
    wire = wire_to(ran.server.store)
    keys = [key for key in wire.command("KEYS", "*") if key.decode().rpartition("}:")[2] in SCORED]
    scores = [score for key in keys if wire.command("TYPE", key) == b"zset"
              for score in wire.command("ZRANGE", key, 0, -1, "WITHSCORES")[1::2]]  # fmt: skip
    assert scores
    assert all(float(score) >= 0 for score in scores)


def test_pages_are_read_by_a_clock_of_the_first_day() -> None:
    wire = wire_to(Stepping(1, Step(0.0, 60.0, alone=True)).run().server.store)
    reader = PageReader(Store(wire, NAMESPACE), expected_as_set(), None)
    assert all(reader.past(span).launches for span in PastSpan)
    assert reader.queue("default", State.COMPLETED, 0)
    assert reader.recurrence("c-all")
    assert Inspector(wire, NAMESPACE).overview().queues
