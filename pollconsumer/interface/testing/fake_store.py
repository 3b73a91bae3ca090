"""A server in memory that goes by a clock of ours, and connections that take no time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pollconsumer.interface.testing.fast_socket import as_bytes, connect, new_server


class FakeStore:
    """``clock`` in seconds since the epoch: keys expire by it, and scripts read it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._server: Any = new_server()
        database: Any = type(self._server.dbs[0])
        # fakeredis sets a database's time before each command.
        time = property(lambda _: clock(), lambda _, __: None)
        quiet = {"time": time, "notify_watch": lambda _, __: None}
        self._server.dbs[0] = type("Database", (database,), quiet)(self._server.lock)
        self._socket = connect(self._server)
        self._socket.time = self._time
        self.execute: Callable[[Sequence[Any]], Any] = self._socket.execute

    def error(self, text: str) -> Exception:
        """As redis-py has an error reply."""
        error: Exception = self._socket.error(text)
        return error

    def holds(self, key: str | bytes) -> bool:
        return as_bytes(key) in self._server.dbs[0]

    def fingerprint(self) -> int:
        """Equal for equal contents."""
        items = self._server.dbs[0]._dict.items()  # noqa: SLF001  without expiring any
        return hash(
            repr(
                sorted(
                    (key, item.expireat, vars(item.value) if hasattr(item.value, "__dict__") else item.value)
                    for key, item in items
                )
            )
        )

    def forget_scripts(self) -> None:
        self._server.script_cache.clear()

    def _time(self) -> list[bytes]:
        seconds, microseconds = divmod(round(self._clock() * 1_000_000), 1_000_000)
        return [b"%d" % seconds, b"%d" % microseconds]


class DirectConnection:
    """As ``Wire`` uses redis-py's; commands are carried out when they are sent."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self._replies: deque[Any] = deque()
        self.socket_connect_timeout = 0.0

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def pack_command(self, *command: Any) -> list[Any]:
        return [command]

    def send_packed_command(self, commands: Sequence[Sequence[Any]], *, check_health: bool) -> None:  # noqa: ARG002  redis-py's
        self._replies.extend(self._store.execute(command) for command in commands)

    def read_response(self, timeout: float) -> Any:  # noqa: ARG002  redis-py's
        return self._replies.popleft()
