"""Connections to one node of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.patience import Patience
from pollconsumer.store.client.replies import ErrorReply, raise_if_error
from pollconsumer.store.client.server_wire import ServerWire
from pollconsumer.store.cluster.cluster_address import Node, NodeAddresses
from pollconsumer.store.cluster.topology import COMMAND


class NodeWire(ServerWire):
    """A connection to one node. Its answers may be errors: who sends to several nodes reads the answers of all nodes
    first."""

    def _refuse(self, reply: ErrorReply, command: Command) -> None: ...

    def once(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        """The answers to ``commands``. Raises for errors, unless they tell which node has the slot."""
        answers = super().once(commands, blocking=blocking)
        for answer in answers:
            if not (isinstance(answer, ErrorReply) and str(answer).startswith(("MOVED ", "ASK "))):
                raise_if_error(answer)
        return answers


def node_wire(address: NodeAddresses, node: Node, patience: Callable[[], Patience], **options: Any) -> NodeWire:
    """A connection to ``node``, with these options of `ServerWire`."""
    return NodeWire(address.url_of(node), patience, **address.options_of(node), **options)


def slots_by(wire: NodeWire) -> Any:
    """Which node has which slots, as the one that ``wire`` connects to says it. Closes the connection."""
    with closing(wire):
        wire.send([COMMAND])
        return wire.receive([COMMAND])[0]
