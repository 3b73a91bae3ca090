"""A store in memory for tests, with blocking commands, and the virtual clock of its server, which the test advances."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from math import inf
from typing import Any

from pollconsumer.core.notation.instants import ceil_epoch_ms, ceil_ms, datetime_of
from pollconsumer.store.client.connection import Command, Connection
from pollconsumer.store.client.patience import Budget, Patience
from pollconsumer.store.client.replies import ErrorReply
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.scripts import Scripts

BUDGET = 5.0
SCRIPTS = Scripts(shebang=False)
"""Read once in a process, since a test suite makes hundreds of stores."""


class VirtualClock:
    """The server's clock and the monotonic clock in one, in whole milliseconds. A test advances it.

    ``tick`` does what is due now, and returns the seconds until something is due again, or inf. When the clock
    advances, it stops at each such time, and calls ``tick``."""

    def __init__(self, start: datetime) -> None:
        self.start_ms = self.now_ms = ceil_epoch_ms(start)
        self.tick: Callable[[], float] = lambda: inf
        self.patience: Callable[[int, int | None], int | None] | None = None
        """Given the end of a wait and the next due time, returns another end of the wait; None ends the wait now."""

    def __call__(self) -> float:
        """Seconds since the clock's start, as a monotonic clock returns them."""
        return (self.now_ms - self.start_ms) / 1000

    def now(self) -> datetime:
        return datetime_of(self.now_ms)

    def next_due(self) -> int | None:
        """Do what is due now. Returns the next due time, or None."""
        left = self.tick()
        return None if left == inf else self.now_ms + max(1, ceil_ms(left))

    def pass_until(self, instant: int) -> None:
        """Advance to an instant in epoch milliseconds, unless it is in the past."""
        due = self.next_due()
        while self.now_ms < instant:
            self.now_ms = instant if due is None else min(instant, due)
            due = self.next_due()

    def wait(self, seconds: float, woken: Callable[[], bool]) -> bool:
        """Wait until ``woken()`` is true, at most ``seconds``. Returns whether it was true."""
        until = self.now_ms + max(1, ceil_ms(seconds))
        while True:
            due = self.next_due()
            if woken():
                return True
            if self.now_ms >= until:
                return False
            if self.patience is not None:
                end = self.patience(until, due)
                if end is None:
                    return False
                until = end
            self.now_ms = until if due is None else min(until, due)


try:
    import fakeredis
    import lupa.lua51  # noqa: F401  without it fakeredis runs no scripts, and says so late
    from redis.exceptions import NoScriptError, ResponseError
except ImportError as error:
    raise ModuleNotFoundError(
        f"pollconsumer.testing needs {error.name}; pip install 'pollconsumer[testing]'", name=error.name
    ) from None


class FakeStore:
    """fakeredis with ``clock`` (seconds since the epoch), by which keys expire, and which scripts read.

    fakeredis has no clock of its own to set: it stamps its databases with the machine's time before each command, and
    its TIME returns that time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        server: Any = fakeredis.FakeServer()
        database: Any = type(server.dbs[0])
        time = property(lambda _: clock(), lambda _, __: None)
        server.dbs[0] = type("ClockedDatabase", (database,), {"time": time})(server.lock)
        self._connection: Any = fakeredis.FakeRedisConnection(server=server, protocol=2)
        self._connection.get_socket().time = self._time

    def execute(self, command: Command) -> Any:
        """The reply to ``command``. An error reply is returned, not raised."""
        try:
            self._connection.send_command(*command)
            return self._connection.read_response(disable_decoding=True)
        except NoScriptError as error:
            return ErrorReply(f"NOSCRIPT {error}")  # redis-py's errors lack their code
        except ResponseError as error:
            return ErrorReply(str(error))

    def _time(self) -> list[bytes]:
        seconds, microseconds = divmod(round(self._clock() * 1_000_000), 1_000_000)
        return [b"%d" % seconds, b"%d" % microseconds]


class DirectConnection:
    """A connection to a server in memory. Sending a command carries it out."""

    location = ""

    def __init__(self, execute: Callable[[Command], Any]) -> None:
        self._execute = execute
        self._replies: deque[Any] = deque()

    def connect(self, timeout: float) -> None: ...

    def send(self, commands: Sequence[Command]) -> None:
        self._replies.extend(self._execute(command) for command in commands)

    def read(self, timeout: float) -> Any:  # noqa: ARG002  the protocol has it
        return self._replies.popleft()

    def readable(self, timeout: float) -> bool:  # noqa: ARG002  the protocol has it
        return bool(self._replies)

    def fileno(self) -> None: ...

    def close(self) -> None: ...


class MemoryOpener:
    """Opens connections to one store in memory."""

    def __init__(self, namespace: str, clock: VirtualClock) -> None:
        self.namespace = namespace
        self._clock, self._store = clock, FakeStore(lambda: clock.now_ms / 1000)
        self._wires: list[Wire] = []

    def wire(self) -> Wire:
        wire = VirtualWire(self._clock, lambda: Budget(BUDGET), lambda: DirectConnection(self._store.execute))
        self._wires.append(wire)
        return wire

    def bare_wire(self, _: Callable[[], Patience]) -> Wire:
        return self.wire()

    def store(self) -> RedisStore:
        return RedisStore(self.wire(), self.namespace)

    def close(self) -> None:
        for wire in self._wires:
            wire.close()


class VirtualWire(Wire):
    """A connection. While a blocking command waits for its answer, virtual time passes."""

    def __init__(
        self, clock: VirtualClock, patience: Callable[[], Patience], connect: Callable[[], Connection]
    ) -> None:
        super().__init__("memory:", patience, connect=connect, scripts=SCRIPTS)
        self._clock = clock
        self._markers: tuple[str, ...] = ()
        self._after: Sequence[Command] = ()

    def send(self, commands: Sequence[Command]) -> None:
        if commands[0][0] == "BLPOP":
            self._markers, self._after = tuple(commands[0][1:-1]), commands[1:]
        else:
            super().send(commands)

    def receive(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        if not self._markers:
            return super().receive(commands, blocking=blocking)
        markers, self._markers = self._markers, ()
        woken = self._clock.wait(blocking, lambda: self._marked(markers)) if blocking else self._marked(markers)
        popped = next(([m, one] for m in markers if (one := self.command("LPOP", m))), None) if woken else None
        return [popped, *(self.once(self._after) if self._after else ())]

    def readable(self, timeout: float) -> bool:
        return self._clock.wait(timeout, lambda: self._marked(self._markers))

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        self._markers = ()
        super().close()

    def _marked(self, markers: Sequence[str]) -> bool:
        super().send([("EXISTS", *markers)])
        return bool(super().receive([()])[0])
