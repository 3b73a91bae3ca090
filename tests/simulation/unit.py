"""Speed: simulated launches of a minute with ten messages, one of them scheduled, of one queue; bare launches of the
sandbox."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pollconsumer import PollConsumer
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.testing import Sandbox
from tests.simulation.hosts.process import Process
from tests.simulation.installation import NAMESPACE, Installation, Opener

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = 10


def speed(launches: int) -> str:
    units, bare = units_a_minute(launches), bare_launches_a_minute(10 * launches)
    return (
        f"per minute of processor time: {units:.0f} launches of 60 s with {MESSAGES} messages and a heartbeat; "
        f"{bare:.0f} bare launches of the sandbox"
    )


def units_a_minute(launches: int) -> float:
    """Per minute of processor time."""
    installation = Installation(1, queues=("default",))
    end = 60.0 * (launches + 1)
    installation.launch_until(end, "run")
    Process(installation.machines[0], "producer", lambda process: _produce(installation, process, launches - 1))
    began = time.process_time()
    installation.world.run_until(end + 70.0)
    spent = time.process_time() - began
    assert len(installation.history.executions) == MESSAGES * (launches - 1), "the last one finds a few left"
    return launches / spent * 60


def bare_launches_a_minute(launches: int) -> float:
    app = PollConsumer()

    @app.handler("nothing")
    def nothing() -> None: ...

    with Sandbox(app) as sandbox:

        def launch() -> None:
            nothing.enqueue()
            assert sandbox.run().handled == 1

        return launches / _seconds(launch, launches) * 60


def _seconds(act: Callable[[], None], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        act()
    return time.process_time() - began


def _produce(installation: Installation, process: Process, minutes: int) -> int:
    store = RedisStore(Opener(installation.server, process).wire(), NAMESPACE, clocks=process)
    for number in range(MESSAGES * minutes):
        delay = 20.0 if number % MESSAGES == 0 else None
        store.enqueue([new_message("plain", {"seconds": 0.5, "fails": 0}, id=f"m{number}", in_=delay)])
        process.sleep(60.0 / MESSAGES)
    return 0
