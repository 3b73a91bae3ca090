"""The nodes of a cluster: which node has which slot, connections to nodes, and which nodes answer."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import lru_cache
from time import monotonic
from typing import Any

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.store.client.address import ClusterAddress, Node, host_and_port
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.patience import Budget, Patience
from pollconsumer.store.client.replies import ErrorReply, OutOfTime, Unanswered, not_understood, raise_if_error
from pollconsumer.store.client.wire import Wire

SLOTS = 16384
KEYLESS = frozenset({"TIME", "INFO"})
"""Our commands that name no key."""
COMMAND = ("CLUSTER", "SLOTS")
_UNKNOWN_HOSTS = ("?", b"?")
ANSWER_WITHIN = 0.5
"""Seconds in which a node must answer; fewer if the caller cannot wait so long."""
SILENT_FOR = 0.4
"""After a node did not answer, it is not asked again for so many seconds at least."""
LONGER_SILENT = 5
"""The same as a multiple of the time that was spent waiting. A node that is silent, instead of refusing, costs more
time."""
_NO_ANSWER = ErrorReply("CLUSTERDOWN no answer")


@lru_cache(4096)
def slot_of(key: str | bytes) -> int:
    """The slot of a key: the CRC16 of its hash tag, if it has one, or of the whole key."""
    name = key.encode() if isinstance(key, str) else key
    _, opened, rest = name.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    return crc_hqx(tag if opened and closed and tag else name, 0) % SLOTS


def key_of(command: tuple[Any, ...], clock_key: str) -> str | bytes:
    """The first key of a command, whose other keys are in the same slot. ``clock_key`` for a command without a key."""
    at = 3 if command[0] == "EVALSHA" else 1
    return clock_key if command[0] in KEYLESS else command[at]


class Topology:
    """The nodes of a cluster and their slots. The connections of a process share it: what one learns, all know."""

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        self._owners: list[Node | None] = [None] * SLOTS
        self._asked = [*address.seeds]
        """Nodes, in the order in which they will be asked."""
        self.suspect = True
        """Whether a node was lost, or did not answer, since the slots were last learned."""

    def owner(self, slot: int) -> Node:
        """The node that has ``slot``. Unanswered if none is known."""
        owner = self._owners[slot]
        if owner is None:
            raise Unanswered(f"no node serves slot {slot}", sent=False)
        return owner

    def primaries(self) -> list[Node]:
        """Every node that has a slot."""
        return sorted(set(filter(None, self._owners)))

    def learn(self, slot: int, node: Node) -> None:
        self._owners[slot] = node

    def redirection(self, error: ErrorReply, sender: Node) -> tuple[str, int, Node] | None:
        """MOVED or ASK, the slot, and the node to which the error redirects. None for another error."""
        kind, *rest = str(error).split() or [""]
        if kind not in {"MOVED", "ASK"}:
            return None
        if len(rest) != 2 or not rest[0].isdecimal() or int(rest[0]) >= SLOTS:
            raise not_understood(error)
        host, _, port = rest[1].rpartition(":")
        return kind, int(rest[0]), _node([host.strip("[]"), port], sender)

    def refresh(self, ask: Callable[[Node], Any]) -> None:
        """Call ``ask`` for one node after the other, until one knows the slots. Unanswered if none does.
        ConfigurationError if a node belongs to no cluster.

        The next call begins with another node, since a node that is cut off from the others reports old slots.
        """
        failure = Unanswered("no node of the cluster answers", sent=False)
        for node in list(self._asked):
            # GUARD another node in doubt
            self._asked = [*(each for each in self._asked if each != node), node]  # with threads, too, none is lost
            try:
                answer = ask(node)
                if isinstance(answer, ErrorReply) and "cluster support disabled" in str(answer):
                    fix = "the server belongs to no cluster: write redis://"
                    raise ConfigurationError("store", self.address.shown, fix)
                raise_if_error(answer)
            except Unanswered as unanswered:
                failure = unanswered
                continue
            try:
                self._read(answer, node)
            except (TypeError, ValueError, LookupError):
                raise not_understood(answer) from None
            return
        raise failure

    def _read(self, answer: Sequence[Any], asked: Node) -> None:
        owners: list[Node | None] = [None] * SLOTS
        known: dict[Node, None] = {}
        for first, last, *nodes in answer:
            if not 0 <= first <= last < SLOTS:
                raise ValueError("no slots of a cluster")
            range_nodes = [_node(each, asked) for each in nodes]
            known |= dict.fromkeys(range_nodes)
            owners[first : last + 1] = range_nodes[:1] * (last + 1 - first)
        self._owners = owners
        still_known = [each for each in self._asked if each in known or each in self.address.seeds]
        self._asked = [*dict.fromkeys([*still_known, *known])]
        self.suspect = False


def _node(described: Sequence[Any], asked: Node) -> Node:
    """The node that is ``described``. Without a host it has the host of the node ``asked``. StoreRefused if the
    description has no host and port."""
    host, port, *_ = described
    if not host or host in _UNKNOWN_HOSTS:
        host = asked.host
    if (place := host_and_port([host, port])) is None:
        raise not_understood(described)
    return Node(*place)


class NodeWire(Wire):
    """A connection to one node. It returns errors as answers, since a caller that sends to several nodes first reads
    the answers of all nodes."""

    def _refuse(self, reply: ErrorReply, command: Command) -> None: ...

    def once(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        """The answers to ``commands``. Raises an error reply, unless it tells which node has the slot."""
        answers = super().once(commands, blocking=blocking)
        for answer in answers:
            if not (isinstance(answer, ErrorReply) and str(answer).startswith(("MOVED ", "ASK "))):
                raise_if_error(answer)
        return answers


def node_wire(address: ClusterAddress, node: Node, patience: Callable[[], Patience], **options: Any) -> NodeWire:
    """A connection to ``node``, with these options of `Wire`."""
    return NodeWire(address.url_of(node), patience, **address.options_of(node), **options)


def slots_by(wire: NodeWire) -> Any:
    """Which node has which slots, as the node reports to which ``wire`` connects. Closes the connection."""
    with closing(wire):
        wire.send([COMMAND])
        return wire.receive([COMMAND])[0]


class Liveness:
    def __init__(self, topology: Topology, patience: Callable[[], Patience]) -> None:
        self._topology, self._patience = topology, patience
        self._silent_until: dict[Node, float] = {}

    def silent_keys(self, keys: Collection[str]) -> set[str]:
        """The ``keys`` whose node does not answer, or does not serve them."""
        self._refresh()
        parts: dict[Node, list[str]] = {}
        silent = set[str]()
        for key in keys:
            try:
                parts.setdefault(self._topology.owner(slot_of(key)), []).append(key)
            except Unanswered:
                silent.add(key)
        for node, answers in self._answers(parts).items():
            silent.update(
                key for key, answer in zip(parts[node], answers, strict=True) if not self._serves(node, answer)
            )
        return silent

    def silent_nodes(self) -> list[Node]:
        """The nodes with slots that do not answer."""
        self._refresh()
        asked = {node: [""] for node in self._topology.primaries()}
        return [node for node, (answer,) in self._answers(asked).items() if not self._serves(node, answer)]

    def _refresh(self) -> None:
        """Learn the nodes again while some are silent, since replicas may have replaced them."""
        if self._topology.suspect or self._silent_until:
            with suppress(Unanswered):  # then the known nodes are asked
                self._topology.refresh(lambda node: slots_by(self._connect(node)))

    def _answers(self, parts: Mapping[Node, Collection[str]]) -> dict[Node, list[Any]]:
        """Each node's answers to a question about its keys. An error stands in place of an answer. All nodes are asked
        before any answer is read."""
        answers = {node: [_NO_ANSWER] * len(keys) for node, keys in parts.items()}
        due = [node for node in parts if monotonic() >= self._silent_until.get(node, 0.0)]
        commands = {node: [("EXISTS", key) for key in parts[node]] for node in due}
        began = monotonic()
        with ExitStack() as stack:
            wires: dict[Node, NodeWire] = {}
            for node in due:
                with suppress(Unanswered):
                    wire = stack.enter_context(closing(self._connect(node)))
                    wire.send(commands[node])
                    wires[node] = wire
            for node, wire in wires.items():
                with suppress(Unanswered):
                    answers[node] = wire.receive(commands[node])
        for node in due:
            self._silent_until.pop(node, None)
            if _NO_ANSWER in answers[node]:
                now = monotonic()
                self._silent_until[node] = now + max(SILENT_FOR, LONGER_SILENT * (now - began))
        return answers

    def _serves(self, node: Node, answer: Any) -> bool:
        """Whether ``node``, by its ``answer``, has a key, or knows which node has it."""
        if isinstance(answer, ErrorReply) and self._topology.redirection(answer, node) is not None:
            return True
        try:
            raise_if_error(answer)
        except Unanswered:
            return False
        return True

    def _connect(self, node: Node) -> NodeWire:
        """A connection to ``node``. OutOfTime if the caller has no time left to connect. Unanswered while the node is
        not to be asked again."""
        if monotonic() < self._silent_until.get(node, 0.0):
            raise Unanswered("it did not answer", sent=False)
        within = min(ANSWER_WITHIN, self._patience().to_connect())
        if within <= 0:
            raise OutOfTime
        return node_wire(self._topology.address, node, lambda: Budget(within))
