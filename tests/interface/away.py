"""Applications on a store whose answers a test decides, on a clock of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pollconsumer import PollConsumer
from pollconsumer.interface.api.store_calls import StorePool
from pollconsumer.store.client.patience import Clocks
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.producer import Producer
from tests.inner import calls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pollconsumer.store.client.connection import Command
    from pollconsumer.store.client.patience import Patience


class Clock(Clocks):
    """Virtual; ``read`` is set whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.read = threading.Event()

    def monotonic(self) -> float:
        self.read.set()
        return self.now

    boot_time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Connection:
    """To a server on which ``answer`` decides what a command gets; it is given the timeout."""

    location = ""

    def __init__(self, answer: Callable[[float], Any]) -> None:
        self._answer = answer
        self.connect = self._nothing

    def _nothing(self, timeout: float) -> None: ...

    def send(self, commands: Sequence[Command]) -> None: ...

    def read(self, timeout: float) -> Any:
        return self._answer(timeout)

    def readable(self, timeout: float) -> bool:  # noqa: ARG002  never asked
        return True

    def fileno(self) -> None: ...

    def close(self) -> None: ...


def application(clock: Clock, patience: float, connect: Callable[[], Connection]) -> PollConsumer:
    """One on a store that needs no greeting, which knows its queue."""

    def open_store(patience: Patience) -> Producer:
        store = Producer(Wire("memory:", lambda: patience, connect=connect), "tests", clocks=clock)
        vars(store)["_registered"].add("default")
        return store

    app = PollConsumer()
    vars(calls_of(app))["_pool"] = StorePool(open_store, patience, clock)
    return app
