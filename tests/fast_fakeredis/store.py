"""The sandbox's server in memory, quicker and open to the simulation: contents compared, copied, restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from tests.fast_fakeredis.socket import as_bytes, connect, new_server


class FastStore:
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

    def holds(self, key: str | bytes) -> bool:
        name, database = as_bytes(key), self._server.dbs[0]
        return name in database._dict and name in database  # noqa: SLF001  ours; it may have expired

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

    def copied(self) -> Mapping[bytes, Any]:
        """The contents, for ``restore``."""
        return deepcopy(dict(self._server.dbs[0]._dict))  # noqa: SLF001  ours

    def restore(self, copied: Mapping[bytes, Any]) -> None:
        """The contents are those of an earlier time, once."""
        database = self._server.dbs[0]
        database.clear()
        database.update(copied)

    def forget_scripts(self) -> None:
        self._server.script_cache.clear()

    def _time(self) -> list[bytes]:
        seconds, microseconds = divmod(round(self._clock() * 1_000_000), 1_000_000)
        return [b"%d" % seconds, b"%d" % microseconds]
