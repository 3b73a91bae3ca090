"""People who send signals to messages that take steps, before, while or after these wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pollconsumer.store.actions import MessageActions
from tests.faults.handlers_known import SIGNAL
from tests.simulation.hosts.process import Process
from tests.simulation.installation import NAMESPACE, Opener
from tests.simulation.recorder import Recorder

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.installation import Installation

LONGEST_DELAY = 30.0


def signallers_of(installation: Installation, queue: str, message_id: str) -> list[Process]:
    """Who signal one message: nobody, one, or two, with values of their own."""
    chance = installation.world.stream(f"signals of {message_id}")
    return [
        _signaller(installation, queue, message_id, f"{message_id}'s signaller {number}", chance)
        for number in range(chance.choice([0, 1, 1, 2]))
    ]


def _signaller(installation: Installation, queue: str, message_id: str, name: str, chance: Random) -> Process:
    delay = chance.choice([0.0, chance.uniform(0.0, 1.0), chance.uniform(0.0, LONGEST_DELAY)])

    def run(process: Process) -> int:
        process.sleep(delay)
        wire = Opener(installation.server, process).wire()

        def call() -> dict[str, Any]:
            return {
                "outcome": "ok" if MessageActions(wire, NAMESPACE).signal(queue, message_id, SIGNAL, name) else "held"
            }

        Recorder(installation, name, wire).record("signal", queue, message_id, call, {"digest": name})
        return 0

    return Process(chance.choice(installation.machines), name, run)
