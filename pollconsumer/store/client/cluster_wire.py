"""A cluster as one `Wire`: each command goes to the node that has the slot of its keys. Also the cluster's nodes: which
slots they have, and whether they answer."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import lru_cache, partial
from time import monotonic, sleep
from typing import Any

from pollconsumer.core.errors import ConfigurationError, NodeLost
from pollconsumer.store.client.address import ClusterAddress, Node, host_and_port
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.patience import Budget, Patience
from pollconsumer.store.client.replies import ErrorReply, OutOfTime, Unanswered, not_understood, raise_if_error
from pollconsumer.store.client.wire import WAITING, Wire
from pollconsumer.store.keyspace import Keys

SLOTS = 16384
KEYLESS = frozenset({"TIME", "INFO"})
"""Commands without a key that this program sends."""
COMMAND = ("CLUSTER", "SLOTS")
_UNKNOWN_HOSTS = ("?", b"?")
ANSWER_WITHIN = 0.5
"""Seconds within which a node must answer; less if the caller's patience is shorter."""
SILENT_FOR = 0.4
"""Least number of seconds for which a node that did not answer is not asked again."""
LONGER_SILENT = 5
"""Factor: a silent node is not asked again for so many times the seconds spent waiting for its answer, since silence
costs more time than a refusal."""
_NO_ANSWER = ErrorReply("CLUSTERDOWN no answer")


@lru_cache(4096)
def slot_of(key: str | bytes) -> int:
    """The slot of a key: the CRC16 of its hash tag, or of the whole key if it has none."""
    name = key.encode() if isinstance(key, str) else key
    _, opened, rest = name.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    return crc_hqx(tag if opened and closed and tag else name, 0) % SLOTS


def key_of(command: tuple[Any, ...], clock_key: str) -> str | bytes:
    """The first key of a command; its other keys are in the same slot. ``clock_key`` for a command without a key."""
    at = 3 if command[0] == "EVALSHA" else 1
    return clock_key if command[0] in KEYLESS else command[at]


class Topology:
    """The nodes of a cluster and their slots, one object for all connections of a process: what one connection learns,
    all know."""

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        self._owners: list[Node | None] = [None] * SLOTS
        self._asked = [*address.seeds]
        """The nodes in the order in which `refresh` asks them."""
        self.suspect = True
        """Whether the slots must be learned again, since a node was lost or did not answer."""

    def owner(self, slot: int) -> Node:
        """The node that has ``slot``. Unanswered if that is not known."""
        owner = self._owners[slot]
        if owner is None:
            raise Unanswered(f"no node serves slot {slot}", sent=False)
        return owner

    def primaries(self) -> list[Node]:
        """All nodes that have slots."""
        return sorted(set(filter(None, self._owners)))

    def learn(self, slot: int, node: Node) -> None:
        self._owners[slot] = node

    def redirection(self, error: ErrorReply, sender: Node) -> tuple[str, int, Node] | None:
        """If the error redirects the command: the word MOVED or ASK, the slot, and the node to ask. Else None.
        ``sender``: the node that answered."""
        kind, *rest = str(error).split() or [""]
        if kind not in {"MOVED", "ASK"}:
            return None
        if len(rest) != 2 or not rest[0].isdecimal() or int(rest[0]) >= SLOTS:
            raise not_understood(error)
        host, _, port = rest[1].rpartition(":")
        return kind, int(rest[0]), _node([host.strip("[]"), port], sender)

    def refresh(self, ask: Callable[[Node], Any]) -> None:
        """Learn the slots: call ``ask`` for one node after the other, until one answers. Unanswered if none does.
        ConfigurationError if a node belongs to no cluster.

        The next call begins with another node, since a node that is cut off from the others still reports old slots."""
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
    """The node in ``described``, a part of the answer of ``asked``. A node without a host has the host of ``asked``.
    StoreRefused if host and port are missing or invalid."""
    host, port, *_ = described
    if not host or host in _UNKNOWN_HOSTS:
        host = asked.host
    if (place := host_and_port([host, port])) is None:
        raise not_understood(described)
    return Node(*place)


class NodeWire(Wire):
    """A connection to one node. It returns most error replies instead of raising them, since a caller that sends to
    several nodes must read the answers of all."""

    def _refuse(self, reply: ErrorReply, command: Command) -> None: ...

    def once(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        """The answers to ``commands``. Raises an error reply, except MOVED and ASK, which are among the answers."""
        answers = super().once(commands, blocking=blocking)
        for answer in answers:
            if not (isinstance(answer, ErrorReply) and str(answer).startswith(("MOVED ", "ASK "))):
                raise_if_error(answer)
        return answers


def node_wire(address: ClusterAddress, node: Node, patience: Callable[[], Patience], **options: Any) -> NodeWire:
    """A connection to ``node``. ``options``: further arguments of `Wire`."""
    return NodeWire(address.url_of(node), patience, **address.options_of(node), **options)


def slots_by(wire: NodeWire) -> Any:
    """The answer of the node at ``wire`` about all nodes and their slots. Closes the connection."""
    with closing(wire):
        wire.send([COMMAND])
        return wire.receive([COMMAND])[0]


class Liveness:
    def __init__(self, topology: Topology, patience: Callable[[], Patience]) -> None:
        self._topology, self._patience = topology, patience
        self._silent_until: dict[Node, float] = {}

    def silent_keys(self, keys: Collection[str]) -> set[str]:
        """The ``keys`` whose node does not answer, or that no node serves."""
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
        """The nodes that have slots and do not answer."""
        self._refresh()
        asked = {node: [""] for node in self._topology.primaries()}
        return [node for node, (answer,) in self._answers(asked).items() if not self._serves(node, answer)]

    def _refresh(self) -> None:
        """Learn the slots again if a node was lost or is silent: a replica may have replaced it."""
        if self._topology.suspect or self._silent_until:
            with suppress(Unanswered):  # then the known nodes are asked
                self._topology.refresh(lambda node: slots_by(self._connect(node)))

    def _answers(self, parts: Mapping[Node, Collection[str]]) -> dict[Node, list[Any]]:
        """For each node, one answer to EXISTS for each of its keys; an error, if there was one, is in place of an
        answer. All nodes are asked before any answer is read."""
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
        """Whether ``answer`` shows that ``node`` serves a key, or redirects to another node."""
        if isinstance(answer, ErrorReply) and self._topology.redirection(answer, node) is not None:
            return True
        try:
            raise_if_error(answer)
        except Unanswered:
            return False
        return True

    def _connect(self, node: Node) -> NodeWire:
        """A connection to ``node``. OutOfTime if the caller's patience is over. Unanswered if the node was silent too
        recently to be asked again."""
        if monotonic() < self._silent_until.get(node, 0.0):
            raise Unanswered("it did not answer", sent=False)
        within = min(ANSWER_WITHIN, self._patience().to_connect())
        if within <= 0:
            raise OutOfTime
        return node_wire(self._topology.address, node, lambda: Budget(within))


RIGHTS = ("ASKING", "CLUSTER|SLOTS")
LOOK_EVERY = 0.05
"""Seconds between two checks of markers. The server cannot block one read for keys in several slots."""
MOST_REDIRECTIONS = 8
"""Maximum number of redirections in a call. While a slot moves, two nodes are concerned, and each may be replaced."""
Part = tuple[Node, list[int]]
"""A node, and the positions in the call of the commands that are sent to it."""


class ClusterWire(Wire):
    """A cluster as one `Wire`, with a connection to each node that is needed. It sends to all nodes before it receives.

    A node that redirects a command has not carried it out, so the command is sent again at once. If a node is lost, or
    serves no slots for now, the whole call is Unanswered, as when a single server is lost."""

    is_cluster, look_every = True, LOOK_EVERY

    def __init__(
        self,
        url: str,
        topology: Topology,
        clock_key: str,
        patience: Callable[[], Patience],
        **options: Any,
    ) -> None:
        """``clock_key``: the node with this key tells the time. ``options``: the arguments ``greet``, ``scripts`` and
        ``strict`` of `Wire`; ``greet`` checks each new connection to a node."""
        super().__init__(url, patience, **options)
        self._topology, self._clock_key = topology, clock_key
        self._liveness = Liveness(topology, self._patience_source)
        self._nodes: dict[Node, NodeWire] = {}
        self._isolated_keys: Sequence[str] = ()
        """The keys that `isolate_keys` was given."""
        self._commands: list[Command] = []
        self._sent: list[Part] = []
        """What was sent and is not received yet."""
        self._markers: Sequence[str] = ()
        """Markers in several slots. `receive` waits for one of them before it sends the other commands."""
        self._taken: list[Any] | None = None
        """The marker that a check has found, and its value; None before that."""
        self._until = self._look_at = 0.0
        """When the wait for markers ends, and when to check them again."""

    @property
    def rights(self) -> tuple[str, ...]:
        return (*RIGHTS, *super().rights)

    def send(self, commands: Sequence[Command]) -> None:
        first: Command = commands[0] if commands else ("",)
        try:
            if self._topology.suspect:
                self._topology.refresh(
                    lambda node: slots_by(node_wire(self._topology.address, node, self._patience_source))
                )
            if first[0] == "BLPOP" and len({slot_of(marker) for marker in first[1:-1]}) > 1:
                self._markers, self._taken = first[1:-1], None
                self._look_at = monotonic()
                self._until = self._look_at + float(first[-1])
            else:
                self._send(list(commands))
        except BaseException as error:
            self._note_lost(error)
            raise

    def receive(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        """The answers to what `send` sent."""
        try:
            if not self._markers:
                return self._receive(blocking)
            self.readable(blocking)
            self._markers = ()
            self._send([*commands[1:]])
            return [self._taken, *self._receive(0.0)]
        except BaseException as error:
            self._note_lost(error)
            raise

    def at_rest(self) -> bool:
        return not self._sent and not self._markers and all(node.at_rest() for node in self._nodes.values())

    def readable(self, timeout: float) -> bool:
        """Do as `Wire` does. While waiting for markers, raise Unanswered if a node is silent, and the error replies of
        nodes."""
        if not self._markers:
            return all(self._nodes[node].readable(timeout) for node, _ in self._sent)
        end = monotonic() + timeout
        while self._taken is None:
            now = monotonic()
            if now >= self._look_at:
                self._look()
            elif now >= self._until:
                break
            elif now >= end:
                return False
            else:
                sleep(min(end, self._until, self._look_at) - now)
        return True

    def _look(self) -> None:
        """Take a value from the first marker that has one."""
        self._look_at = monotonic() + LOOK_EVERY
        try:
            self._send([("LPOP", marker) for marker in self._markers])
            found = zip(self._markers, self._receive(0.0), strict=True)
        except BaseException as error:
            self._note_lost(error)
            raise
        self._taken = next(([marker.encode(), one] for marker, one in found if one is not None), None)

    def fileno(self) -> int | None:
        return next((self._nodes[node].fileno() for node, _ in self._sent), None)

    def connected_replicas(self) -> int:
        if not self._nodes:
            self.command("TIME")
        return self.replicas

    def servers(self) -> list[Wire]:
        """Connections to all nodes that have slots. The first one's node tells the time."""
        self.command("TIME")  # this learns the nodes
        clock_key = self._topology.owner(slot_of(self._clock_key))
        return [self._node(node) for node in sorted(self._topology.primaries(), key=lambda node: node != clock_key)]

    def lost_servers(self) -> list[Wire]:
        return [self._node(node) for node in self._liveness.silent_nodes()]

    def lost(self, keys: Collection[str]) -> set[str]:
        silent = self._liveness.silent_keys({*keys, self._clock_key})
        return set() if self._clock_key in silent else silent

    def isolate_keys(self, keys: Sequence[str]) -> None:
        self._isolated_keys = keys

    def part(self, commands: Sequence[Command]) -> None:
        if not self._isolated_keys:
            return
        needed = {key for command in commands if isinstance(key := key_of(command, self._clock_key), str)}
        lost = self.lost({*self._isolated_keys, *needed})
        if lost & needed and not lost.issuperset(self._isolated_keys):
            raise NodeLost("store unreachable", self.address, "a node of it is lost")

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()
        self._sent, self._markers = [], ()

    def _note_lost(self, error: BaseException) -> None:
        self._topology.suspect |= isinstance(error, Unanswered)  # GUARD doubt
        self._abandon()

    def _abandon(self) -> None:
        for node, _ in self._sent:
            self._nodes[node]._abandon()  # noqa: SLF001  a wire of ours  # GUARD late answers of other nodes
        self._sent, self._markers = [], ()

    def _send(self, commands: list[Command]) -> None:
        self._commands = commands
        self._send_to(self._owners(range(len(commands))))

    def _owners(self, positions: Sequence[int]) -> list[Part]:
        """Each node, with those of ``positions`` whose commands go to it. A WAIT at the end goes to every node that is
        sent something."""
        last = len(self._commands) - 1
        waits = bool(self._commands) and self._commands[last][0] in WAITING
        parts: dict[Node, list[int]] = {}
        for at in positions:
            if not waits or at != last:
                owner = self._topology.owner(slot_of(key_of(self._commands[at], self._clock_key)))
                parts.setdefault(owner, []).append(at)
        if waits:
            for node_items in parts.values():
                node_items.append(last)
        return [*parts.items()]

    def _send_to(self, parts: list[Part]) -> None:
        for node, positions in parts:
            try:
                self._node(node).send([self._commands[at] for at in positions])
            except OutOfTime:
                raise
            except Unanswered as unanswered:
                raise Unanswered(str(unanswered), sent=unanswered.sent or bool(self._sent)) from None
            self._sent.append((node, positions))
        self.replicas = min((node.replicas for node in self._nodes.values()), default=0)
        if self._nodes:
            known = max(node.watermarks.greatest for node in self._nodes.values())
            self.watermarks = self.watermarks._replace(greatest=known)

    def _receive(self, blocking: float) -> list[Any]:
        answers: list[Any] = [None] * len(self._commands)
        for _ in range(MOST_REDIRECTIONS):
            redirected = self._receive_into(answers, blocking)
            if not redirected:
                break
            self._send_to(self._owners(redirected))
        else:
            raise Unanswered("redirected from node to node", sent=len(answers) > 1)
        for answer, command in zip(answers, self._commands, strict=True):
            if isinstance(answer, ErrorReply):
                try:
                    self._refuse(answer, command)
                except Unanswered as unanswered:
                    # GUARD what another node may have carried out
                    raise Unanswered(str(unanswered), sent=len(answers) > 1) from None
        self.last_answer = answers
        return answers

    def _receive_into(self, answers: list[Any], blocking: float) -> list[int]:
        """Receive what was sent, into ``answers``. Returns the positions of commands to send again elsewhere."""
        moved: list[int] = []
        elsewhere: list[tuple[int, Node]] = []
        while self._sent:
            node, positions = self._sent[0]
            node_items = self._nodes[node].receive([self._commands[at] for at in positions], blocking=blocking)
            del self._sent[0]
            for at, kind, owner in self._note_all(node, positions, node_items, answers):
                if kind == "MOVED":
                    moved.append(at)
                else:
                    elsewhere.append((at, owner))
        waits = [command for command in self._commands[-1:] if command[0] in WAITING]
        for at, owner in elsewhere:  # each of these nodes carries out one command while the slot moves there
            asking = [("ASKING",), self._commands[at], *waits]  # GUARD asking
            self._node(owner).send(asking)
            _, answer, *waited = self._node(owner).receive(asking, blocking=blocking)
            if isinstance(answer, ErrorReply) and self._topology.redirection(answer, owner) is not None:
                moved.append(at)  # GUARD a slot that moved on: its node before it knows
                continue
            answers[at] = answer
            for each in waited:
                self._note(answers, -1, each)
        return moved

    def _note_all(
        self, node: Node, positions: Sequence[int], node_items: Sequence[Any], answers: list[Any]
    ) -> Iterator[tuple[int, str, Node]]:
        """Enter the answers of one node, ``node_items``, into ``answers``. Yields, for each command that the node
        redirects: its position, MOVED or ASK, and the new node."""
        served = False
        for at, answer in zip(positions, node_items, strict=True):
            redirection = self._topology.redirection(answer, node) if isinstance(answer, ErrorReply) else None
            if redirection is None:
                is_wait = self._commands[at][0] in WAITING
                # GUARD replicas do not wait
                if served or not is_wait:  # a node that has become a replica refuses to wait
                    self._note(answers, at, answer)
                served = True
                continue
            kind, slot, owner = redirection
            if kind == "MOVED":
                self._topology.learn(slot, owner)  # GUARD a slot's new node
            if self._commands[at][0] != "BLPOP":  # its caller waits again
                yield at, kind, owner

    def _note(self, answers: list[Any], at: int, answer: Any) -> None:
        """Enter one answer. If several nodes answer a WAIT, enter an error if there is one, else the least number."""
        before = answers[at]
        if before is None or isinstance(answer, ErrorReply):
            answers[at] = answer
        elif not isinstance(before, ErrorReply):
            # GUARD the fewest replicas
            answers[at] = [*map(min, answer, before)] if isinstance(answer, list) else min(answer, before)

    def _node(self, node: Node) -> NodeWire:
        wire = self._nodes.get(node)
        if wire is None:
            wire = node_wire(
                self._topology.address, node, self._patience_source, greet=self._greet, scripts=self.scripts
            )
            self._nodes[node] = wire
        return wire


def connecting_to(cluster: ClusterAddress, namespace: str) -> Callable[..., ClusterWire]:
    """A function that makes connections to the cluster. Call it with a patience, and options of `ClusterWire`."""
    return partial(ClusterWire, cluster.shown, Topology(cluster), Keys(namespace).control("fences"))
