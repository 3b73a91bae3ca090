"""Waits for markers of several slots at once.

A blocking read takes keys of one slot. So each node is asked, over one connection, to say when one of its markers is
written; whoever is told takes the marker by a command. When a slot moves to another node, nothing is said of a marker
that does not exist, but of a key beside it that does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from math import inf
from selectors import EVENT_READ, DefaultSelector
from time import monotonic, sleep

from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.exact_wait import wait_readable
from pollconsumer.store.client.replies import ErrorReply, Unanswered, raise_if_error
from pollconsumer.store.cluster.cluster_address import Node
from pollconsumer.store.cluster.nodes import NodeWire
from pollconsumer.store.cluster.slots import slot_of
from pollconsumer.store.cluster.topology import Topology
from pollconsumer.store.keyspace import kept_beside

LOOK_EVERY = 1.0
"""Seconds between looks at the markers, whatever the nodes say."""
LOOK_WITHOUT_PUSHES_EVERY = 0.1
"""Seconds between looks where nodes do not say what is written."""
UNSURE = 0.05
"""Seconds until the next look, while a slot moves."""


class Watch:
    def __init__(self, topology: Topology, connect: Callable[[Node], NodeWire]) -> None:
        self._topology, self._connect = topology, connect
        self._pushes = topology.address.pushes
        self._wires: dict[Node, NodeWire] = {}
        self._watched: set[bytes] = set()
        self._beside: set[bytes] = set()
        """Keys beside the markers that are watched, too: one in the slot of each marker."""
        self._written: set[bytes] = set()
        self._until = self._look_at = 0.0
        self._selector: DefaultSelector | None = None
        self._pid = 0

    def begin(self, markers: Sequence[str], seconds: float) -> None:
        """Watch ``markers`` for ``seconds``, or less. Raises Unanswered if a node does not answer, and errors of a
        node."""
        if self._pid != os.getpid():
            self.close()  # the parent's
            self._pid = os.getpid()
        now = monotonic()
        if now >= self._look_at:
            self._forget()
            self._look_at = now + LOOK_EVERY
        self._until = min(now + seconds, self._look_at, inf if self._pushes else now + LOOK_WITHOUT_PUSHES_EVERY)
        self._look({*map(str.encode, markers)} - self._watched)

    def readable(self, timeout: float) -> bool:
        """Whether a marker is written, or its time is over, within ``timeout`` seconds."""
        if self._written:
            return True
        left = max(0.0, min(timeout, self._until - monotonic()))
        if (descriptor := self.fileno()) is None:
            sleep(left)
            return monotonic() >= self._until
        return bool(wait_readable([descriptor], left)) or monotonic() >= self._until

    def fileno(self) -> int | None:
        """A descriptor that is readable once a marker is written; None where nodes do not say so."""
        return self._polled().fileno() if self._pushes else None

    def written(self) -> list[bytes]:
        """The markers written since the last call. Unanswered if a connection was lost."""
        if not self._pushes:
            self._look(self._watched.copy())
        for wire in self._wires.values():
            self._note(wire.written())
        written, self._written = self._written, set()
        return sorted(written)

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
        if self._selector is not None:
            self._selector.close()
        self._selector = None
        self._wires.clear()
        self._forget()
        self._written.clear()

    def _look(self, markers: set[bytes]) -> None:
        """Read ``markers``, so that their nodes say when these are written."""
        reads: dict[Node, list[Command]] = {}
        for slot, of_slot in groupby(sorted(markers, key=slot_of), slot_of):
            first, *others = of_slot
            commands = reads.setdefault(self._topology.owner(slot), [])
            commands.append(("EXISTS", first, *others))
            if (beside := kept_beside(first)) not in self._beside:
                commands.append(("EXISTS", beside))
        for node, commands in reads.items():
            self._send(node, commands)
        for node, commands in reads.items():
            wire = self._wires[node]
            answers = wire.receive(commands)
            self._note(wire.written(receiving=False))  # before these were read again
            for command, answer in zip(commands, answers, strict=True):
                read = command[1:]
                if isinstance(answer, ErrorReply):
                    self._learn(answer, node)
                elif read[0] not in markers:
                    self._beside.update(read)
                else:
                    self._watched.update(read)
                    if answer:
                        self._note(read)
            self._note(wire.written())

    def _note(self, keys: Iterable[bytes] | None) -> None:
        written = self._watched.copy() if keys is None else self._watched.intersection(keys)
        self._watched -= written
        self._written |= written
        if keys is None or not self._beside.isdisjoint(keys):  # a slot may have moved: read all of them again
            self._forget()
            self._until = 0.0

    def _forget(self) -> None:
        self._watched.clear()
        self._beside.clear()

    def _learn(self, error: ErrorReply, node: Node) -> None:
        self._until = min(self._until, monotonic() + UNSURE)
        moved = self._topology.redirection(error, node)
        if moved is None:
            with suppress(Unanswered):  # as while the slot moves
                raise_if_error(error)
            self._topology.doubtful = True
        elif moved[0] == "MOVED":
            self._topology.learn(*moved[1:])

    def _send(self, node: Node, commands: Sequence[Command]) -> None:
        wire = self._wires.get(node)
        known = wire is not None
        if wire is None:
            wire = self._wires[node] = self._connect(node)
        wire.send(commands)
        if not known and (descriptor := wire.fileno()) is not None:
            self._polled().register(descriptor, EVENT_READ)

    def _polled(self) -> DefaultSelector:
        if self._selector is None:
            self._selector = DefaultSelector()
        return self._selector
