"""Whole launches of several queues, on a cluster whose slots move: a short form of ``python -m tests.cluster``."""

from __future__ import annotations

import signal

import pytest

from tests.cluster.nodes import Cluster
from tests.cluster.trial import Faults, Trial


@pytest.mark.parametrize("faults", [Faults(move_every=0.2), Faults(kill_every=3)])
def test_launches_and_producers_follow_slots_and_nodes(faults: Faults) -> None:
    cluster = Cluster(replicas=int(faults.kill_every > 0))
    trial = Trial(cluster.url, cluster, 6, launch=4, durability="strict" if faults.kill_every else "everysec")
    try:
        result = trial.run(8, 0.01, faults)
    finally:
        trial.close()
        cluster.close()
    assert result.faults
    assert result.acknowledged
    assert (result.lost, result.said) == ([], {})
    assert {*result.exits} <= {0, -signal.SIGTERM}
