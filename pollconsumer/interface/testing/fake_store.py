"""A server in memory that uses the virtual clock, and connections that take no time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

try:
    import fakeredis
    import lupa.lua51  # noqa: F401  without it fakeredis runs no scripts, and says so late
    from redis.exceptions import NoScriptError, ResponseError
except ImportError as error:
    raise ModuleNotFoundError(
        f"pollconsumer.testing needs {error.name}; pip install 'pollconsumer[testing]'", name=error.name
    ) from None

from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.replies import ErrorReply


class FakeStore:
    """fakeredis, whose keys expire, and whose scripts read the time, by ``clock``: seconds since the epoch.

    fakeredis has no clock to set: it stamps its databases before each command, and its TIME reads the machine's clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        server: Any = fakeredis.FakeServer()
        database: Any = type(server.dbs[0])
        time = property(lambda _: clock(), lambda _, __: None)
        server.dbs[0] = type("ClockedDatabase", (database,), {"time": time})(server.lock)
        self._connection: Any = fakeredis.FakeRedisConnection(server=server, protocol=2)
        self._connection.get_socket().time = self._time

    def execute(self, command: Command) -> Any:
        """The reply, an error reply included."""
        try:
            self._connection.send_command(*command)
            return self._connection.read_response(disable_decoding=True)
        except NoScriptError as error:
            return ErrorReply(f"NOSCRIPT {error}")  # redis-py's errors have lost their code
        except ResponseError as error:
            return ErrorReply(str(error))

    def _time(self) -> list[bytes]:
        seconds, microseconds = divmod(round(self._clock() * 1_000_000), 1_000_000)
        return [b"%d" % seconds, b"%d" % microseconds]


class DirectConnection:
    """A connection to a server in memory: a command is carried out when it is sent."""

    place = ""

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
