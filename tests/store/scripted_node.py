"""Nodes of a cluster that answer as a test says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import hiredis

from pollconsumer.store.client.cluster_wire import SLOTS
from tests.store.relay import Listening

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    Answer = Callable[[list[bytes]], bytes]

OK = b"+OK\r\n"


class ScriptedNode:
    """``answer`` gives the reply to each command; the connection is lost instead of an empty one."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.seen = answer, list[bytes]()
        self.nodes: Sequence[ScriptedNode] = [self]
        """Those that have the slots, in equal shares, when it is asked."""
        self.slots = b""
        """What it says instead."""
        self._listening = Listening(self._serve, over_network=True)
        self.url = self._listening.url.replace("redis:", "redis+cluster:")
        self.port = int(self.url.rpartition(":")[2])

    def _serve(self, connection: socket.socket) -> None:
        reader = hiredis.Reader()
        while received := connection.recv(1 << 16):
            reader.feed(received)
            while command := reader.gets():
                if not (reply := self._reply(command)):
                    return
                connection.sendall(reply)

    def _reply(self, command: list[bytes]) -> bytes:
        if command[0] == b"CLUSTER":
            return self.slots or slots_of(self.nodes)
        if command[0] == b"CLIENT":
            return b":1\r\n"
        self.seen.append(b" ".join(command))
        return self.answer(command)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()


def slots_of(nodes: Sequence[ScriptedNode]) -> bytes:
    """The reply to CLUSTER SLOTS, without hosts: each node is where it was asked."""
    each = SLOTS // len(nodes)
    ranges = b"".join(
        b"*3\r\n:%d\r\n:%d\r\n*3\r\n$0\r\n\r\n:%d\r\n$1\r\nx\r\n" % (at * each, (at + 1) * each - 1, node.port)
        for at, node in enumerate(nodes)
    )
    return b"*%d\r\n%b" % (len(nodes), ranges)
