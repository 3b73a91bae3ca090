"""fakeredis' connection with a shorter path to its commands: a script calls hundreds of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import fakeredis
import lupa.lua51 as lua
from fakeredis import _msgs as messages
from fakeredis._commands import SUPPORTED_COMMANDS, Key
from fakeredis._core import CommandItem
from fakeredis._helpers import SimpleError, decode_command_bytes
from fakeredis._socket._resp import convert_to_resp2

from pollconsumer.store.client.replies import ErrorReply
from tests.fast_fakeredis.scripts import PARTS, START

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_KEPT = 1024
"""Tables of keys and replies that are kept."""
MOST_ON_STACK = 1000
UNUSUAL = {messages.FLAG_NO_SCRIPT, messages.FLAG_SKIP_CONVERT_TO_RESP2, messages.FLAG_TRANSACTION}

Run = Callable[..., Any]
"""Runs a command with so many arguments: bytes, or numbers of a script."""


def new_server() -> Any:
    return fakeredis.FakeServer()


def connect(server: Any) -> Any:
    connection: Any = fakeredis.FakeRedisConnection(server=server, protocol=2)
    connection.connect()
    socket: Any = connection.get_socket()
    known: Any = type(socket)
    socket.__class__ = _fast(known)
    socket.connection = connection  # closes the socket when it is collected
    socket.prepare()
    return socket


def as_bytes(part: Any) -> bytes:
    """An argument of a command, as it is sent."""
    if isinstance(part, bytes):
        return part
    return (part if isinstance(part, str) else repr(part)).encode()


def _as_argument(given: Any) -> bytes:
    """An argument of ``redis.call``, as Redis has it: numbers are formatted."""
    return given if type(given) is bytes else b"%.17g" % given


@cache
def _fast(socket: Any) -> Any:
    """fakeredis interprets a command's signature in each call of it, and serves subscribers, transactions and other
    kinds of servers; it compiles a script in each call of it, collects all garbage after it, and looks through the
    global names in each of its commands. Here one program uses the server, and its scripts are tested elsewhere."""

    class FastSocket(socket):  # type: ignore[misc]  # of a class known at run time
        _script_resp: int | None

        def prepare(self) -> None:
            self._runs: dict[tuple[Any, int], Run] = {}
            self._scripts: dict[bytes, Any] = {}
            self._tables: dict[tuple[Any, ...], Any] = {}
            self._empty: dict[Any, Any] = {}
            self._lua = self._get_server_runtime(self._server)
            contents = self._db._dict = Contents()  # noqa: SLF001  ours
            contents.present = self._lua.table()
            self._start, self._parts = (
                self._lua.eval(START)(self._run_of_script, contents.present),
                self._lua.eval(PARTS),
            )

        def execute(self, command: Sequence[Any]) -> Any:
            """The reply."""
            name = command[0]
            try:
                if name == "EVALSHA":
                    return self._decode_result(self._evaluate(*command[1:]))
                known = name, len(command) - 1
                run = self._runs.get(known)
                if run is None:
                    run = self._run_of(name.lower(), known[1], convert_to_resp2) or self._by_the_longer_path(name)
                    self._runs[known] = run
                return self._decode_result(run(*map(as_bytes, command[1:])))
            except SimpleError as error:
                return ErrorReply(error.value)

        def _by_the_longer_path(self, name: str) -> Run:
            def run(*arguments: Any) -> Any:
                self._process_command([name.encode(), *arguments])
                return convert_to_resp2(self.responses.get_nowait())

            return run

        def _evaluate(self, digest: bytes, number: int | bytes, *arguments: Any) -> Any:
            count = int(number)
            if digest not in self._server.script_cache:
                raise SimpleError(messages.NO_MATCHING_SCRIPT_MSG)
            function = self._scripts.get(digest)
            if function is None:
                function = self._scripts[digest] = self._lua.compile(self._server.script_cache[digest])
            keys, given = self._table(arguments[:count]), [as_bytes(each) for each in arguments[count:]]
            self._script_resp = 2
            try:
                if len(given) > MOST_ON_STACK:
                    table = self._lua.table_from(given)
                    return self._reply(self._start(function, keys, table, *self.time()), nested=False)
                return self._reply(self._start(function, keys, False, *self.time(), *given), nested=False)
            except lua.LuaError as error:
                raise SimpleError(messages.SCRIPT_ERROR_MSG.format(digest.decode(), error)) from None
            finally:
                self._script_resp = None

        def _table(self, keys: tuple[Any, ...]) -> Any:
            table = self._tables.get(keys)
            if table is None:
                if len(self._tables) == MOST_KEPT:
                    self._tables.clear()
                table = self._tables[keys] = self._lua.table_from(map(as_bytes, keys))
            return table

        def _reply(self, value: Any, *, nested: bool = True) -> Any:
            """Of a script."""
            if type(value) is bytes or type(value) is int:
                return value
            parts = self._parts(value) if lua.lua_type(value) == "table" else False
            if parts is False:
                return self._convert_lua_result(value, nested)
            return [self._reply(each) for each in parts[1:]] if type(parts) is tuple else []

        def _run_of_script(self, name: bytes, count: int) -> Run:
            """What carries out ``redis.call`` with a command's name and so many arguments."""
            decoded = decode_command_bytes(name)
            return self._run_of(decoded, count, self._value) or self._by_fakeredis(decoded)

        def _by_fakeredis(self, name: str) -> Run:
            function, signature = self._name_to_func(name)
            return lambda *given: self._value(
                self._run_command(function, signature, [_as_argument(each) for each in given], True)
            )

        def _value(self, result: Any) -> Any:
            """A result, for Lua."""
            if type(result) is bytes or type(result) is int:
                return result
            if result is None:
                return False
            if type(result) is list:
                return self._lua.table_from([self._value(each) for each in result])
            return self._convert_redis_result(self._lua, convert_to_resp2(result))

        def _run_of(self, name: str, count: int, converted: Callable[[Any], Any]) -> Run | None:
            """None for a command that is unusual, has several keys, or another number of arguments. Replies are
            ``converted``, except for bytes and integers."""
            signature = SUPPORTED_COMMANDS.get(name)
            kinds = _kinds(signature, count) if signature else None
            if (
                signature is None
                or kinds is None
                or signature.flags & UNUSUAL
                or any(isinstance(kind, Key) for kind in kinds[1:])
            ):
                return None
            if kinds and isinstance(kinds[0], Key):
                return self._with_key(signature, kinds, converted)
            function, decoded = getattr(self, signature.func_name), _decoded(kinds)

            def run(*given: Any) -> Any:
                arguments = [_as_argument(each) for each in given]
                for at, decode in decoded:
                    arguments[at] = decode(arguments[at])
                return converted(function(*arguments))

            return run

        def _with_key(self, signature: Any, kinds: list[Any], converted: Callable[[Any], Any]) -> Run:
            function, decoded, flags = getattr(self, signature.func_name), _decoded(kinds), signature.flags
            database, contents, empty = self._db, self._db._dict, self._empty  # noqa: SLF001  ours
            kind, missing = kinds[0].type_, kinds[0].missing_return
            creates = kind not in {None, bytes} and messages.FLAG_DO_NOT_CREATE not in flags
            remove_empty = messages.FLAG_LEAVE_EMPTY_VAL not in flags

            def run(key: bytes, *given: Any) -> Any:
                value, stored = None, contents.get(key)
                if stored is not None and stored.expireat is not None:
                    stored = database.get(key)  # unless it has expired
                if stored is None:
                    if missing is not Key.UNSPECIFIED:
                        return converted(missing)
                    if creates:
                        value = empty.get(kind)
                        if value is None:
                            value = empty[kind] = kind()
                arguments: list[Any] = [key, *(each if type(each) is bytes else b"%.17g" % each for each in given)]
                for at, decode in decoded:
                    arguments[at] = decode(arguments[at])
                if stored is not None and kind is not None and type(stored.value) is not kind:
                    raise SimpleError(messages.WRONGTYPE_MSG)
                item = arguments[0] = CommandItem(key, database, stored, value)
                try:
                    result = function(*arguments)
                finally:
                    if item._modified or item._expireat_modified:  # noqa: SLF001  its property takes a call more
                        empty.pop(kind, None)
                        item.writeback(remove_empty)
                return result if type(result) is bytes or type(result) is int else converted(result)

            return run

    return FastSocket


class Contents(dict[bytes, Any]):
    """Of a database: items by key. The keys are also in ``present``, a table of Lua."""

    present: Any

    def __setitem__(self, key: bytes, item: Any) -> None:
        super().__setitem__(key, item)
        self.present[key] = True

    def __delitem__(self, key: bytes) -> None:
        super().__delitem__(key)
        self.present[key] = None

    def clear(self) -> None:
        for key in list(self):
            del self[key]


def _kinds(signature: Any, count: int) -> list[Any] | None:
    """Of so many arguments; None if the command takes another number."""
    fixed, repeat = list(signature.fixed), signature.repeat
    further = count - len(fixed)
    if further and (further < 0 or not repeat or further % len(repeat)):
        return None
    return fixed + [repeat[at % len(repeat)] for at in range(further)]


def _decoded(kinds: list[Any]) -> list[tuple[int, Callable[[bytes], Any]]]:
    """The arguments that are no keys and no plain bytes."""
    return [
        (at, lru_cache(MOST_KEPT)(kind.decode))
        for at, kind in enumerate(kinds)
        if not isinstance(kind, Key) and kind is not bytes
    ]
