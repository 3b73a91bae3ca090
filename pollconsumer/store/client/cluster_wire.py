"""A cluster as one connection: each command goes to the node that has its keys' slot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from time import monotonic, sleep
from typing import Any

from pollconsumer.core.errors import NodeLost
from pollconsumer.store.client.address import ClusterAddress, Node
from pollconsumer.store.client.cluster_nodes import Liveness, NodeWire, Topology, key_of, node_wire, slot_of, slots_by
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.patience import Patience
from pollconsumer.store.client.replies import ErrorReply, OutOfTime, Unanswered
from pollconsumer.store.client.wire import WAITING, Wire
from pollconsumer.store.keyspace import Keys

RIGHTS = ("ASKING", "CLUSTER|SLOTS")
LOOK_EVERY = 0.05
"""Seconds between two checks. No blocking read can wait for markers of several slots, nor for a connection besides
something else."""
MOST_REDIRECTIONS = 8
"""Maximum number of redirections of one call. A slot that moves has two nodes, and a replica may replace each."""
Part = tuple[Node, list[int]]
"""A node, and the positions of the commands that go to it."""


class ClusterWire(Wire):
    """A cluster's connections: one to each node that is needed. It sends to all nodes before it receives.

    If a node redirects a command, the command has not been carried out, and is sent again at once. If a node is lost,
    or serves no slots for now, the whole call is Unanswered, as when a single server is lost.
    """

    is_cluster, look_every = True, LOOK_EVERY

    def __init__(
        self,
        url: str,
        topology: Topology,
        clock_key: str,
        patience: Callable[[], Patience],
        **options: Any,
    ) -> None:
        """The node with the key ``clock_key`` tells the time. ``options`` of `Wire`: ``greet``, which checks each new
        connection to a node, ``scripts`` and ``strict``."""
        super().__init__(url, patience, **options)
        self._topology, self._clock_key = topology, clock_key
        self._liveness = Liveness(topology, self._patience_source)
        self._nodes: dict[Node, NodeWire] = {}
        self._isolated_keys: Sequence[str] = ()
        """One key of each queue that is isolated: see `isolate_keys`."""
        self._commands: list[Command] = []
        self._sent: list[Part] = []
        """Parts whose answers have not been received."""
        self._markers: Sequence[str] = ()
        """Markers in several slots. `receive` waits for them before it sends the other commands."""
        self._taken: list[Any] | None = None
        """The marker that the last check found, and its value."""
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
        """As for one server, but a check of markers raises Unanswered if a node does not answer, and raises the error
        replies of nodes."""
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
        """Take the first marker that exists."""
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
        """Connections to all nodes that have a slot. The first leads to the node that tells the time."""
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
        """The nodes of the commands at ``positions``, each with the positions of its commands. A WAIT at the end goes
        to every node that gets a write."""
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
        """Receive what was sent into ``answers``. Returns the positions of commands that must be sent again to other
        nodes."""
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
        """Put the answers of a node among all. Yields for each redirected command its position, the kind of
        redirection, and the new node."""
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
        """Put an answer among all. If several nodes answer a WAIT, keep the least number, or an error."""
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
    """A function that makes connections to a cluster, given a patience."""
    return partial(ClusterWire, cluster.shown, Topology(cluster), Keys(namespace).control("fences"))
