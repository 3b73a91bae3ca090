"""Calls of producers and people in a simulation, recorded with what they were answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import BadData, NotFound, OutcomeUnknown, PollConsumerError, StoreUnreachable
from pollconsumer.store.actions import MessageActions
from tests.faults.history import Operation
from tests.simulation.installation import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.client.wire import Wire
    from tests.simulation.installation import Installation

TRIES = 20


class Recorder:
    """Of the process with this ``name``, whose interventions go over ``wire``."""

    def __init__(self, installation: Installation, name: str, wire: Wire) -> None:
        self.installation, self.name, self._wire = installation, name, wire
        self.person = MessageActions(wire, NAMESPACE)

    def cancel(self, queue: str, message_id: str) -> None:
        self.record("cancel", queue, message_id, lambda: self.person.cancel(queue, message_id))

    def redrive(self, queue: str, message_id: str) -> None:
        def call() -> dict[str, Any]:
            return {"outcome": "ok" if self.person.redrive(queue, [message_id]) else "refused"}

        self.record("redrive", queue, message_id, call)

    def record(
        self,
        what: str,
        queue: str,
        message_id: str,
        call: Callable[[], Any],
        more: dict[str, Any] | None = None,
        tries: int = TRIES,
    ) -> None:
        """Repeat ``call`` until it is answered; it returns more of the answer, or None.

        Whether a repeated call has replaced a message, its answer does not tell.
        """
        world, operations = self.installation.world, self.installation.history.operations
        at = len(operations)
        operations.append(Operation(what, queue, message_id, self.installation.now_us(), **more or {}))
        world.tell(f"{self.name}: {what} {message_id}")
        for number in range(tries):
            try:
                answer = call()
            except (OutcomeUnknown, StoreUnreachable):
                continue  # the id makes repeating it harmless
            except (BadData, NotFound):
                # An earlier request, whose reply was lost, may have been carried out, and be why this one is refused.
                repeated = number > 0 or self._wire.repeated
                answer = {"outcome": "unknown" if repeated else "refused"}
            except PollConsumerError as error:
                world.tell(f"{self.name}: {error}")
                raise
            if operations[at].replaces() and (number > 0 or self._wire.repeated):
                answer = {"outcome": "unknown"}
            operations[at] = operations[at]._replace(
                answered=self.installation.now_us(), **(answer or {"outcome": "ok"})
            )
            world.tell(f"{self.name}: {what} {message_id}: {operations[at].outcome}")
            return
