"""Connections to one node of a cluster: one for commands, one on which it says what was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from time import monotonic
from typing import Any

from hiredis import PushNotification

from pollconsumer.store.client.address import Address, address_of
from pollconsumer.store.client.connection import Command, SocketConnection
from pollconsumer.store.client.patience import COMMAND_TIMEOUT, Patience, left_until
from pollconsumer.store.client.replies import ErrorReply, Unanswered, raise_if_error
from pollconsumer.store.client.server_wire import ServerWire
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.cluster.cluster_address import Node, NodeAddresses
from pollconsumer.store.cluster.topology import COMMAND


class NodeWire(ServerWire):
    """A connection to one node. Its answers may be errors: who sends to several nodes reads the answers of all nodes
    first."""

    def _refuse(self, reply: ErrorReply, command: Command) -> None: ...

    def written(self, *, receiving: bool = True) -> list[bytes] | None:  # noqa: ARG002  of a `WatchingWire`
        """Keys that were written since the last call; None for all of them."""
        return []

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


class PushConnection(SocketConnection):
    """Keeps apart from replies what the server says by itself."""

    def __init__(self, address: Address, patience: Callable[[], Patience]) -> None:
        super().__init__(address, patience)
        self._pushed: list[PushNotification] = []

    def read(self, timeout: float) -> Any:
        until = monotonic() + self._at_most(timeout)
        while isinstance(reply := super().read(left_until(until, timeout)), PushNotification):
            self._pushed.append(reply)
        return reply

    def pushed(self, *, receiving: bool) -> list[PushNotification]:
        """What came between replies since the last call; with ``receiving`` what has arrived after them, too."""
        until = monotonic() + COMMAND_TIMEOUT
        while receiving and self.readable(0.0):
            self._pushed.append(super().read(left_until(until)))
        taken, self._pushed = self._pushed, []
        return taken


class WatchingWire(NodeWire):
    """A connection over which the server says once of each key that was read when that key is written next (client-side
    caching)."""

    def __init__(self, address: NodeAddresses, node: Node, patience: Callable[[], Patience]) -> None:
        url = address.url_of(node)
        place = address_of(url)._replace(**address.options_of(node))
        self._pushing = PushConnection(place, patience)
        super().__init__(url, patience, greet=_track, connect=lambda: self._pushing)

    def fileno(self) -> int:
        return self._pushing.fileno()

    def written(self, *, receiving: bool = True) -> list[bytes] | None:
        """Keys that were written since the last call; None for all of them. See `PushConnection.pushed`."""
        try:
            pushed = self._pushing.pushed(receiving=receiving)
        except OSError as error:
            raise Unanswered(str(error), sent=True) from None
        keys: list[bytes] = []
        for _, names in pushed:
            if names is None:  # the server was emptied
                return None
            keys += names
        return keys


def _track(wire: Wire) -> None:
    wire.once([("HELLO", 3), ("CLIENT", "TRACKING", "ON")])
