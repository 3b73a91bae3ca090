"""The nodes of a cluster: connections to them, and which node has each slot, as the nodes themselves say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.store.client.address import place_in
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.patience import Patience
from pollconsumer.store.client.replies import ErrorReply, Unanswered, not_understood, raise_if_error
from pollconsumer.store.client.server_wire import ServerWire
from pollconsumer.store.cluster.cluster_address import Node, NodeAddresses
from pollconsumer.store.cluster.slots import SLOTS

COMMAND = ("CLUSTER", "SLOTS")
_UNKNOWN_HOSTS = ("?", b"?")


class Topology:
    """The nodes of a cluster and their slots, shared by the connections of a process: what one learns, all know."""

    def __init__(self, address: NodeAddresses) -> None:
        self.address = address
        self._owners: list[Node | None] = [None] * SLOTS
        self._asked = [*address.seeds]
        """Nodes, in the order in which they are asked next."""
        self.doubtful = True
        """Whether a node was lost, or had no answer, since the nodes were asked."""

    def owner(self, slot: int) -> Node:
        """The node that has ``slot``. Unanswered if none is known to have it."""
        owner = self._owners[slot]
        if owner is None:
            raise Unanswered(f"no node serves slot {slot}", sent=False)
        return owner

    def primaries(self) -> list[Node]:
        """Every node with a slot."""
        return sorted(set(filter(None, self._owners)))

    def learn(self, slot: int, node: Node) -> None:
        self._owners[slot] = node

    def redirection(self, error: ErrorReply, sender: Node) -> tuple[str, int, Node] | None:
        """MOVED or ASK, the slot, and the node to turn to; None for another error."""
        kind, *rest = str(error).split() or [""]
        if kind not in {"MOVED", "ASK"}:
            return None
        if len(rest) != 2 or not rest[0].isdecimal() or int(rest[0]) >= SLOTS:
            raise not_understood(error)
        host, _, port = rest[1].rpartition(":")
        return kind, int(rest[0]), _node([host.strip("[]"), port], sender)

    def refresh(self, ask: Callable[[Node], Any]) -> None:
        """Ask one node after the other, by ``ask``, until one knows. Unanswered if none does, ConfigurationError if one
        belongs to no cluster.

        The next call begins with another node: one that is cut off from the others says how the slots once were.
        """
        failure = Unanswered("no node of the cluster answers", sent=False)
        for node in list(self._asked):
            # GUARD another node in doubt
            self._asked = [*(each for each in self._asked if each != node), node]  # of several threads none is lost
            try:
                answer = ask(node)
                self._raise_if_refused(answer)
            except Unanswered as unanswered:
                failure = unanswered
                continue
            try:
                self._read(answer, node)
            except (TypeError, ValueError, LookupError):
                raise not_understood(answer) from None
            return
        raise failure

    def _raise_if_refused(self, answer: Any) -> None:
        if isinstance(answer, ErrorReply) and "cluster support disabled" in str(answer):
            raise ConfigurationError("store", self.address.shown, "the server belongs to no cluster: write redis://")
        raise_if_error(answer)

    def _read(self, answer: Sequence[Any], asked: Node) -> None:
        owners: list[Node | None] = [None] * SLOTS
        known: dict[Node, None] = {}
        for first, last, *nodes in answer:
            if not 0 <= first <= last < SLOTS:
                raise ValueError("no slots of a cluster")
            of_range = [_node(each, asked) for each in nodes]
            known |= dict.fromkeys(of_range)
            owners[first : last + 1] = of_range[:1] * (last + 1 - first)
        self._owners = owners
        standing = [each for each in self._asked if each in known or each in self.address.seeds]
        self._asked = [*dict.fromkeys([*standing, *known])]
        self.doubtful = False


def _node(described: Sequence[Any], asked: Node) -> Node:
    """The node that is ``described``; without a host it has that of the node ``asked``. StoreRefused for what is no
    host and port."""
    host, port, *_ = described
    if not host or host in _UNKNOWN_HOSTS:
        host = asked.host
    if (place := place_in([host, port])) is None:
        raise not_understood(described)
    return Node(*place)


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
