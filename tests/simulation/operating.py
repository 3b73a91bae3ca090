"""People: they pause and resume queues and handlers, and break leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.core.errors import NotFound, OutcomeUnknown, StoreUnreachable
from pollconsumer.store.actions import HandlerPauses, MessageActions
from pollconsumer.store.leases import Leases
from pollconsumer.store.reading.inspector import Inspector
from tests.faults.handlers_known import BULK
from tests.faults.history import HandlerPause
from tests.simulation.hosts.process import Process
from tests.simulation.installation import NAMESPACE, Opener
from tests.simulation.producing import HANDLERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.installation import Installation


class Operator:
    """``acts`` of them, evenly spread over ``seconds``. What was paused is resumed, or the pause ends by itself."""

    def __init__(self, installation: Installation, acts: int, seconds: float, happens: Callable[[str], bool]) -> None:
        self.installation, self.chance = installation, installation.world.stream("operator")
        self._acts, self._pace, self._happens = acts, seconds / max(acts, 1), happens
        self.process = Process(self.chance.choice(installation.machines), "operator", self._run)

    def _run(self, process: Process) -> int:
        opener = Opener(self.installation.server, process)
        self._person = MessageActions(opener.wire(), NAMESPACE)
        self._pauses = HandlerPauses(opener.wire(), NAMESPACE)
        self._leases, self._inspector = Leases(opener.wire(), NAMESPACE), Inspector(opener.wire(), NAMESPACE)
        for number in range(self._acts):
            name = f"operator-{number}"
            self.chance = self.installation.world.stream(name)
            process.sleep(self.chance.uniform(0.0, 2 * self._pace))
            act = self.chance.choice([self._pause, self._pause_for, self._pause_handler, self._break_lease])
            if self._happens(name):
                act(process)
        return 0

    def _pause(self, process: Process) -> None:
        queue, server = self._queue(), self.installation.server
        self._insist(f"pauses {queue}", lambda: self._person.pause(queue, paused=True))
        since = server.now_ms() + 1
        process.sleep(self.chance.choice([0.1, 3.0, 20.0]))
        until = server.now_ms() - 1
        self._insist(f"resumes {queue}", lambda: self._person.pause(queue, paused=False))
        self.installation.history.pauses.append((queue, since, until))

    def _pause_for(self, _: Process) -> None:
        """It ends as long after the call was asked for as it lasts, at the earliest."""
        queue, server = self._queue(), self.installation.server
        lasts_ms, asked = self.chance.choice([100, 3000, 20_000]), server.now_ms()
        self._insist(
            f"pauses {queue} for {lasts_ms} ms", lambda: self._person.pause(queue, paused=True, lasts_ms=lasts_ms)
        )
        self.installation.history.pauses.append((queue, server.now_ms() + 1, asked + lasts_ms - 1))

    def _queue(self) -> str:
        """A queue, whose next pause takes the place of the one that has not ended."""
        history, ended = self.installation.history, self.installation.server.now_ms() - 1
        chosen = self.chance.choice(self.installation.queues)
        history.pauses[:] = [
            (queue, since, min(until, ended) if queue == chosen else until) for queue, since, until in history.pauses
        ]
        return chosen

    def _pause_handler(self, process: Process) -> None:
        """Launches are told by the operator, not by their heartbeats, which do not listen here."""
        handler, server = self.chance.choice([*HANDLERS, *BULK]), self.installation.server
        self._insist(f"pauses the handler {handler}", lambda: self._pauses.pause(handler))
        since, told = server.now_ms() + 1, [launch for _, launch in self.installation.working]
        for launch in told:
            launch.progress.stops.pause([handler.encode()])
        process.sleep(self.chance.choice([5.0, 20.0, 70.0]))
        until = server.now_ms() - 1
        self._insist(f"resumes the handler {handler}", lambda: self._pauses.resume(handler))
        for _, launch in self.installation.working:
            launch.progress.stops.pause([])
        fences = frozenset(int(launch.claim.fence) for launch in told)
        self.installation.history.handler_pauses.append(HandlerPause(handler, since, until, fences))

    def _break_lease(self, _: Process) -> None:
        def act() -> None:
            held = self._inspector.leases()
            if held:
                lease = self.chance.choice(held)
                self.installation.broken_at = self.installation.world.now
                self._leases.break_(lease["lineage"], str(lease["fence"]))
                self.installation.broken_at = self.installation.world.now

        self._insist("breaks a lease", act)

    def _insist(self, what: str, act: Callable[[], None]) -> None:
        self.installation.history.faults.append(f"operator {what}")
        self.installation.world.tell(f"operator: {what}")
        while True:
            try:
                act()
            except (OutcomeUnknown, StoreUnreachable):
                continue
            except NotFound:
                pass
            self.installation.world.tell(f"operator: {what}: done")
            return
