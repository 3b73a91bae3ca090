"""An installation without faults, of which coverage, gaps, latencies and overruns are recorded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pollconsumer.core.window import StopReason
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.queues.redis_store import RedisStore
from tests.forecast.consumer_rules import Rules
from tests.forecast.distributions import Arrival
from tests.forecast.figures import LeaseSpan, Record
from tests.forecast.launchers import Platform
from tests.simulation.hosts.process import Process
from tests.simulation.installation import NAMESPACE, Installation, Opener

HANDLER = "measured"


@dataclass
class _Tenure:
    """``released`` is None if the process died first."""

    process: Process
    acquired: float
    stop_before: float
    released: float | None = None

    def over(self) -> bool:
        return self.released is not None or not self.process.alive

    def held(self) -> LeaseSpan:
        released = self.process.ended if self.released is None else self.released
        return LeaseSpan(self.acquired, released, self.stop_before)


class Measured(Installation):
    """Consumer and mover on one platform, and a producer of messages."""

    def __init__(
        self, seed: int, platform: Platform, rules: Rules, messages: Iterator[Arrival], seconds: float
    ) -> None:
        super().__init__(seed, platform, rules)
        self.record = Record()
        self._messages, self._seconds = messages, seconds
        self._tenures: list[_Tenure] = []
        self._lines = [self.launch_until(seconds, role) for role in ("run", "move")]
        Process(self.machines[0], "producer", self._produce)

    def run(self) -> Record:
        self.world.run_until(self._seconds)
        self.record.launches = sum(each.name.startswith("run") for each in self.processes)
        self.record.dropped = self._lines[0].dropped
        self.record.tenures += [each.held() for each in self._tenures if each.over()]
        return self.record

    def _produce(self, process: Process) -> int:
        store = RedisStore(Opener(self.server, process).wire(), NAMESPACE, clocks=process)
        for sent, due, handling in self._messages:
            process.pause(sent - self.world.now)
            seconds = None if math.isinf(handling.seconds) else handling.seconds
            payload = {"due": due, "scheduled": due > sent, "seconds": seconds, "crashes": handling.crashes}
            store.enqueue([new_message(HANDLER, payload, in_=due - sent if due > sent else None)])
        return 0

    def work(self, launch: Launch, process: Process) -> StopReason:
        left = launch.window.stop_before - process.monotonic()
        tenure = _Tenure(process, self.world.now, self.world.now + left)
        self._tenures.append(tenure)
        reason = super().work(launch, process)
        tenure.released = self.world.now
        return reason

    def handlers(self, process: Process) -> dict[str, Handler]:
        def run(payload: dict[str, Any], _: Context | None) -> None:
            self.record.handled(self.world.now - payload["due"], scheduled=payload["scheduled"])
            process.sleep(math.inf if payload["seconds"] is None else payload["seconds"])
            if payload["crashes"]:
                process.end()
                process.pause(None)

        return {HANDLER: Handler(HANDLER, run)}
