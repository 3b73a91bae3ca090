"""Which keys of a cluster can be reached: a question to each node, on connections of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, closing, suppress
from time import monotonic
from typing import Any

from pollconsumer.store.client.patience import Budget, Patience
from pollconsumer.store.client.replies import ErrorReply, OutOfTime, Unanswered, raise_if_error
from pollconsumer.store.cluster.cluster_address import Node
from pollconsumer.store.cluster.slots import slot_of
from pollconsumer.store.cluster.topology import NodeWire, Topology, node_wire, slots_by

ANSWER_WITHIN = 0.5
"""Seconds in which a node must answer, or fewer if the caller may not wait as long."""
SILENT_FOR = 0.4
"""Seconds for which a node that did not answer is not asked again, at least."""
LONGER_SILENT = 5
"""The same, as a multiple of how long it was waited for: a node that says nothing, instead of refusing, takes its
time."""


class Liveness:
    def __init__(self, topology: Topology, patience: Callable[[], Patience]) -> None:
        self._topology, self._patience = topology, patience
        self._silent_until: dict[Node, float] = {}

    def silent_keys(self, keys: Collection[str]) -> set[str]:
        """Which of ``keys`` are on a node that does not answer, or does not serve them."""
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
        """Ask for the nodes again while some are silent: replicas may take their places."""
        if self._topology.doubtful or self._silent_until:
            with suppress(Unanswered):  # the nodes known before are then asked
                self._topology.refresh(lambda node: slots_by(self._connect(node)))

    def _answers(self, parts: Mapping[Node, Collection[str]]) -> dict[Node, list[Any]]:
        """Each node's answers to a question about its keys, or the errors in place of answers; asks all nodes before it
        reads."""
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
        """Whether ``node``, by its ``answer``, has a key, or knows who has."""
        if isinstance(answer, ErrorReply) and self._topology.redirection(answer, node) is not None:
            return True
        try:
            raise_if_error(answer)
        except Unanswered:
            return False
        return True

    def _connect(self, node: Node) -> NodeWire:
        """A connection to ``node``. OutOfTime once the caller makes no connections any more; Unanswered while the node
        is not to be asked again."""
        if monotonic() < self._silent_until.get(node, 0.0):
            raise Unanswered("it did not answer", sent=False)
        within = min(ANSWER_WITHIN, self._patience().to_connect())
        if within <= 0:
            raise OutOfTime
        return node_wire(self._topology.address, node, lambda: Budget(within))


_NO_ANSWER = ErrorReply("CLUSTERDOWN no answer")
