"""The simulated server serves what blocks as a real one does."""

from __future__ import annotations

from collections import deque
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.simulation.hosts.network import Network
from tests.simulation.hosts.server import SimulatedServer
from tests.simulation.hosts.world import World


def test_what_a_client_does_once_it_was_served_serves_another_that_blocks_once() -> None:
    server = SimulatedServer(World(1), Network(), {})
    replies: list[Any] = []

    def link(name: str) -> Any:
        made: Any = SimpleNamespace(open=True, waiting=deque(), stream=Random(1))
        made.reply = lambda value: replies.append((name, value))
        return made

    first, second, pusher = link("first"), link("second"), link("pusher")
    server.receive(first, ("BLPOP", "a", 60.0))
    first.waiting.append(("RPUSH", "b", "1", "2"))
    server.receive(second, ("BLPOP", "b", 60.0))
    server.receive(pusher, ("RPUSH", "a", "1"))
    server.receive(second, ("LLEN", "b"))
    assert replies == [
        ("pusher", 1),
        ("first", [b"a", b"1"]),
        ("first", 2),
        ("second", [b"b", b"1"]),
        ("second", 1),
    ]
