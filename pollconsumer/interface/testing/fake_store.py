"""A server in memory that goes by a clock of ours, and connections that take no time."""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

try:
    import fakeredis
    import lupa.lua51 as lua  # without it fakeredis runs no scripts, and says so late
except ImportError as error:
    raise ModuleNotFoundError(
        f"pollconsumer.testing needs {error.name}; pip install 'pollconsumer[testing]'", name=error.name
    ) from None
from fakeredis import _msgs as messages
from fakeredis._helpers import SimpleError, decode_command_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class FakeStore:
    """``clock`` in seconds since the epoch: keys expire by it, and scripts read it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._server: Any = fakeredis.FakeServer()
        database: Any = type(self._server.dbs[0])
        # fakeredis sets a database's time before each command.
        time = property(lambda _: clock(), lambda _, __: None)
        self._server.dbs[0] = type("Database", (database,), {"time": time})(self._server.lock)
        self._connection: Any = fakeredis.FakeRedisConnection(server=self._server, protocol=2)
        self._connection.connect()
        self._socket: Any = self._connection.get_socket()
        self._replies: Any = self._socket.responses
        self._socket.time = self._time
        self._socket.__class__ = _compiling(type(self._socket))

    def execute(self, command: Sequence[Any]) -> Any:
        """The reply; an exception of redis-py's for an error."""
        self._socket._process_command([as_bytes(part) for part in command])  # noqa: SLF001  less the protocol
        return self._replies.get_nowait()

    def error(self, text: str) -> Exception:
        """As redis-py has an error reply."""
        error: Exception = self._socket._decode_error(SimpleError(text))  # noqa: SLF001  its own mapping
        return error

    def holds(self, key: Any) -> bool:
        return self._server.dbs[0].get(as_bytes(key)) is not None

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


def as_bytes(part: Any) -> bytes:
    """An argument of a command, as it is sent."""
    if isinstance(part, bytes):
        return part
    return (part if isinstance(part, str) else repr(part)).encode()


@cache
def _compiling(socket: Any) -> Any:
    """fakeredis compiles a script in each call of it, collects all garbage after it, and looks through the global names
    in each of its commands: three quarters of a call. The scripts are ours, and tested elsewhere."""

    class CompilingSocket(socket):  # type: ignore[misc]  # of a class known at run time
        _script_resp: int | None

        def evalsha(self, digest: bytes, count: int, *arguments: bytes) -> Any:
            server: Any = self._server
            if digest not in server.script_cache:
                raise SimpleError(messages.NO_MATCHING_SCRIPT_MSG)
            runtime = self._get_server_runtime(server)
            compiled = server.__dict__.setdefault("compiled", {})
            function = compiled.get(digest)
            if function is None:
                function = compiled[digest] = runtime.compile(server.script_cache[digest])
            vars(server)["_lua_current_socket"][0] = self
            vars(server)["_lua_set_keys_argv"](
                runtime.table_from(arguments[:count]), runtime.table_from(arguments[count:])
            )
            self._script_resp = 2
            try:
                return self._convert_lua_result(function(), nested=False)
            except lua.LuaError as error:
                raise SimpleError(messages.SCRIPT_ERROR_MSG.format(digest.decode(), error)) from None
            finally:
                self._script_resp = None

        def _lua_redis_call(self, runtime: Any, _expected: Any, name: bytes, *arguments: Any) -> Any:
            function, signature = self._name_to_func(decode_command_bytes(name))
            given = [each if type(each) is bytes else b"%.17g" % each for each in arguments]
            return self._convert_redis_result(runtime, self._run_command(function, signature, given, True))

    return CompilingSocket
