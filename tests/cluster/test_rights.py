"""The rights that docs/reference/rights.md lists for a cluster are enough there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import PermissionDenied
from pollconsumer.store.client.address import ClusterAddress
from pollconsumer.store.client.cluster_wire import ClusterWire, connecting_to
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.suitability import Suitability
from tests.conftest import NAMESPACE
from tests.store.test_rights import BEGINNINGS, DOCUMENT, Memo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.store.servers import Server

TEXT = DOCUMENT.read_text("utf-8")
(OF_ALL,) = re.findall(r"On a cluster each role needs `(.*?)` as\swell", TEXT)


@pytest.fixture
def user(cluster_server: Server) -> Iterator[Callable[[str, str], ClusterWire]]:
    """Connections as a user with the documented rights of a role, and further ones."""
    nodes = cluster_server.wire().servers()
    made: list[ClusterWire] = []

    def make(role: str, also: str) -> ClusterWire:
        (line,) = re.findall(rf"^ACL SETUSER {role} ((?:.*\\\n)*.*)$", TEXT, re.MULTILINE)
        rules = line.replace("\\\n", " ").replace("PASSWORD", "secret").replace("pollconsumer", NAMESPACE).split()
        for node in nodes:
            node.command("ACL", "SETUSER", role, "reset", *rules, *also.split())
        url = cluster_server.url.replace("://", f"://{role}:secret@")
        greet = Suitability(NAMESPACE, Memo(), lambda _: None)
        made.append(connecting_to(ClusterAddress(url), NAMESPACE)(lambda: Budget(5), greet=greet))
        return made[-1]

    yield make
    for wire in made:
        wire.close()
    for node in nodes:
        node.command("ACL", "DELUSER", *BEGINNINGS)


@pytest.mark.parametrize("role", ["producer", "launch", "operator"])
def test_the_documented_rights_of_a_role_are_enough_and_without_those_of_clusters_it_is_told(
    user: Callable[[str, str], ClusterWire], role: str
) -> None:
    BEGINNINGS[role](user(role, OF_ALL))
    for right in OF_ALL.split():
        lacking = " ".join(each for each in OF_ALL.split() if each != right)
        with pytest.raises(PermissionDenied, match=re.escape(right)):
            BEGINNINGS[role](user(role, lacking))


def test_the_documented_rights_of_a_launch_are_enough_to_wait_for_several_queues(
    user: Callable[[str, str], ClusterWire],
) -> None:
    markers = [Keys(NAMESPACE).queue(queue, "ready_marker") for queue in ("mail", "images", "reports")]
    commands = [("BLPOP", *markers, 0.01)]
    assert user("launch", OF_ALL).once(commands, blocking=0.01) == [None]
