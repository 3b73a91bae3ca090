"""Launches, movers and commands while a node of a real cluster is lost, and no replica takes its place."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.client.cluster_wire import slot_of
from pollconsumer.store.keyspace import Keys
from tests.cluster.nodes import Cluster
from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.nodes import NodeProcess

QUEUES = ("mail", "images", "reports", "billing", "sync", "search")
WINDOW = "12s"


class Parted:
    """An installation on three nodes, of which one that has queues, and no leases, is ``victim``."""

    def __init__(self) -> None:
        self.cluster = Cluster(3, 0, "--cluster-require-full-coverage", "no")
        keys = Keys("pollconsumer")
        self.owners = {queue: self.cluster.owner(slot_of(keys.queue(queue, "ready"))) for queue in QUEUES}
        home = self.cluster.owner(slot_of(keys.control("fences")))
        self.victim: NodeProcess = next(node for node in self.owners.values() if node.port != home.port)
        self.lost = sorted(queue for queue, node in self.owners.items() if node.port == self.victim.port)
        self.left = [queue for queue in QUEUES if queue not in self.lost]
        queues = json.dumps([*self.lost, *self.left])
        self.site = Site(f'store = "{self.cluster.url}"\n[consumer]\nqueues = {queues}\nestimated_duration = "10ms"\n')

    def enqueue(self, queue: str, *options: str) -> None:
        self.site.enqueue("record", "--queue", queue, *options, name=queue)

    def lose(self) -> None:
        self.victim.process.send_signal(signal.SIGSTOP)

    def find(self) -> None:
        self.victim.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.site.close()
        self.cluster.close()


@pytest.fixture
def parted() -> Iterator[Parted]:
    parted = Parted()
    yield parted
    parted.close()


@pytest.fixture(scope="module")
def parted_for_commands() -> Iterator[Parted]:
    """A message in each queue, and the node lost."""
    parted = Parted()
    for queue in QUEUES:
        parted.enqueue(queue)
    parted.lose()
    yield parted
    parted.close()


def test_a_launch_serves_the_queues_of_other_nodes_and_says_at_its_end_which_it_could_not(parted: Parted) -> None:
    for queue in QUEUES:
        parted.enqueue(queue)
    parted.lose()
    done = parted.site.command("run", "--timeout", WINDOW)
    assert sorted(parted.site.notes()) == sorted(parted.left)
    assert done.returncode == 69
    assert f"pollconsumer: error: queues unreachable: {', '.join(parted.lost)}; their node" in done.stderr
    parted.find()
    assert parted.site.drain().returncode == 0
    assert sorted(parted.site.notes()) == sorted(QUEUES)


def test_a_launch_goes_on_with_the_queues_of_a_node_that_is_lost_for_a_while(parted: Parted) -> None:
    for queue in QUEUES:
        parted.enqueue(queue)
    launch = parted.site.start("run", "--timeout", "60s")
    for queue in QUEUES:
        parted.site.await_note(queue)
    parted.lose()
    parted.enqueue(parted.left[0])
    parted.site.await_note(parted.left[0], times=2)
    parted.find()
    for queue in parted.lost:
        parted.enqueue(queue)
        parted.site.await_note(queue, times=2)
    launch.send_signal(signal.SIGTERM)
    _, errors = launch.communicate()
    assert (launch.returncode, errors) == (0, "")


def test_what_a_launch_had_in_hand_when_it_died_is_given_back_to_the_queues_of_other_nodes(parted: Parted) -> None:
    queue = parted.left[0]
    held = parted.site.enqueue("hold", "--queue", queue, name="a")
    launch = parted.site.start("run", "--timeout", "60s")
    parted.site.await_note("begin a")
    heartbeat = parted.site.heartbeat_of(launch.pid)
    parted.lose()
    launch.kill()
    launch.communicate()
    wait_until(lambda: not Path(f"/proc/{heartbeat}").exists(), "the end of the heartbeat")
    assert parted.site.state(held) == "ready"
    assert parted.site.json("lease", "show") == []


@pytest.mark.parametrize(
    "command",
    ["status", "list", "queue list", "dead list", "recurrences list", "metrics", "doctor", "dashboard --static pages"],
)
def test_a_command_shows_what_can_be_read_and_then_names_the_queues_of_a_lost_node(
    parted_for_commands: Parted, command: str
) -> None:
    parted = parted_for_commands
    done = parted.site.command(*command.split())
    fix = "their node of the cluster is lost, and no replica has taken its place"
    assert done.returncode == 69
    assert done.stderr == f"pollconsumer: error: queues unreachable: {', '.join(parted.lost)}; {fix}\n"
    if command in ("status", "list", "queue list"):
        assert all(queue in done.stdout for queue in parted.left)
    if "--static" not in command and command != "metrics":
        read = json.loads(parted.site.command(*command.split(), "--json").stdout)
        if command == "status":
            assert (read["unreachable"], [each["name"] for each in read["queues"]]) == (
                parted.lost,
                sorted(parted.left),
            )
        if command == "doctor":
            assert not read["well"]
            assert "node_lost" in {each["name"] for each in read["findings"]}


def test_a_mover_serves_the_queues_of_other_nodes(parted: Parted) -> None:
    for queue in QUEUES:
        parted.enqueue(queue, "--in", "10ms")
    parted.lose()
    done = parted.site.command("move", "--timeout", WINDOW)
    assert done.returncode == 69
    assert f"queues unreachable: {', '.join(parted.lost)}; " in done.stderr
    parted.find()
    ready = {each["name"]: each["ready"] for each in parted.site.json("status")["queues"]}
    assert ready == {queue: int(queue in parted.left) for queue in QUEUES}
