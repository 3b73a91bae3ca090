"""The embedded server: one Valkey server for each user. The first process that needs it starts it; all share it.

It listens on a unix socket, in a directory that only the user, or a group, can enter, and on no port. It outlives the
process that started it. If it dies, the next process that needs it starts it again with all acknowledged data, from its
append-only file. That is written to disk every second, or with durability ``strict`` at every write."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from pollconsumer.core.errors import ConfigurationError, PermissionDenied, StoreUnreachable
from pollconsumer.runtime.embedded.directory import (
    AOF_DIRECTORY,
    LOG,
    PID,
    PRIVATE,
    check_directory,
    check_parent,
    create_directory,
    link_address,
    modes_of,
    process_without_socket,
    socket_address,
    take_lock,
)
from pollconsumer.store.client.address import Address
from pollconsumer.store.client.connection import SocketConnection
from pollconsumer.store.client.replies import ErrorReply

Reply = str | list[str]

SHORTEST_WAIT = 0.01  # even past the deadline a healthy server can answer
APPENDFSYNC = {"everysec": "everysec", "strict": "always"}
STATUS_BUDGET = 2.0
LONG = 2.0
"""Seconds of loading data after which ``report`` is called."""
GONE = 0.5
"""Seconds. A server that holds its lock without a socket for so long is neither starting nor ending: it was cut off."""
FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.05  # a cold start takes about 0.05 s, loading a large file many seconds


def ask(address: Path, commands: list[str], deadline: float) -> list[Reply]:
    """Send ``commands`` to the server at ``address``. Returns the replies, one for each; errors begin with ``-``, as in
    ``-LOADING …``. An empty list if no server listens, or if it hung up before its last reply.

    TimeoutError if not all are answered by ``deadline`` (``time.monotonic``). OSError for other failures."""
    while True:
        connection = SocketConnection(Address("", 0, str(address), "", "", 0, None))
        left = max(deadline - time.monotonic(), SHORTEST_WAIT)
        try:
            connection.connect(left)
            connection.send([tuple(command.split()) for command in commands])
            return [_text(connection.read(left)) for _ in commands]
        except (FileNotFoundError, ConnectionError):
            return []
        except BlockingIOError:
            # A stalled server with a full backlog is alive, so this counts as a timeout.
            if time.monotonic() >= deadline:
                raise TimeoutError from None
        finally:
            connection.close()
        time.sleep(SHORTEST_WAIT)


def _text(reply: Any) -> Any:
    if isinstance(reply, list):
        return [_text(each) for each in reply]
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "replace")
    return f"-{reply}" if isinstance(reply, ErrorReply) else str(reply)


class ServerStatus(NamedTuple):
    """A running server. ``version``: with the name, as in ``Valkey 9.1.2``. ``program``: the path that was started."""

    pid: int
    version: str
    uptime_seconds: int
    used_memory_bytes: int
    aof_enabled: bool
    durability: str
    socket: Path
    directory: Path
    program: Path


class EmbeddedServer:
    """The server of one data directory. Constructing this object starts and checks nothing."""

    def __init__(
        self, directory: Path, *, named: bool = False, program: Path | None = None, durability: str = "everysec"
    ) -> None:
        """``named``: the settings name the directory. Then the users of its group may share it, as its mode says.
        ``program``: the server program; None to look for one. ``durability``: ``everysec`` or ``strict``, see
        `ensure_running`."""
        self.directory = Path(directory).absolute()
        self._access = modes_of(self.directory) if named else PRIVATE
        self._program, self._durability = program, durability

    def check_directory(self) -> bool:
        """Whether the data directory exists. PermissionDenied if users who may not share it can write there."""
        return check_directory(self.directory, self._access)

    def check_start(self) -> None:
        """Raise the errors that `ensure_running` would raise for the server program or the data directory. Starts and
        creates nothing."""
        from pollconsumer.runtime.embedded.start import find_program  # few commands start a server

        find_program(self._program)
        if not self.check_directory():
            check_parent(self.directory, self._access)

    @property
    def socket(self) -> Path:
        """The path of the socket. CannotCreate if it is too long and cannot be shortened."""
        return socket_address(self.directory)

    @property
    def log(self) -> Path:
        """The path of the server's log. A start renames a log of more than 1 MiB to ``server.log.1``."""
        return self.directory / LOG

    @property
    def url(self) -> str:
        """The server's URL: ``unix://``, the percent-quoted path of the socket, database 0."""
        return f"unix://{quote(os.fsencode(self.socket))}?db=0"

    def ensure_running(
        self,
        *,
        budget: float = 10.0,
        patience: float = 0.0,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start the server unless it runs, and return once it answers, within ``budget`` seconds. While it is loading
        its data, within ``patience`` seconds if that is longer. ``report`` is called once if loading takes long.

        With durability ``strict``, a running server with ``everysec`` is switched to ``strict``. It is never switched
        back, since another process may rely on ``strict``.

        StoreUnreachable (69) if the server does not answer in time. A stalled server keeps its lock, so no second one
        is started on its files. CannotCreate (73) for a directory, socket or disk that is not writable.
        PermissionDenied (77) for a directory that others can write. StoreRefused (78) for corrupt data, or a missing or
        too old server program. ConfigurationError (78) if the program that the settings name is no server."""
        appendfsync = APPENDFSYNC.get(self._durability)
        if appendfsync is None:
            raise ConfigurationError("durability", self._durability, f"use one of {', '.join(APPENDFSYNC)}")
        began = time.monotonic()
        deadline, pause, reported = began + budget, FIRST_PAUSE, False
        log_began: int | None = None
        create_directory(self.directory, self._access)
        address = self._linked_address()
        cut_off = _CutOff(self.directory, address)
        commands = ["PING"] if self._durability == "everysec" else ["PING", "CONFIG GET appendfsync"]
        while True:
            replies = self._ask(address, commands, deadline)
            answer = replies[0] if replies else "nothing"
            # A server whose disk is full answers MISCONF. It can be read, and recovers once there is space.
            if answer == "PONG" or answer[:8] == "-MISCONF":
                answer = self._raise_durability(address, replies[1:], appendfsync, deadline)
                if not answer:
                    return
            if not replies:
                if (lock := take_lock(self.directory, self._access)) is not None:
                    log_began = self._start(address, appendfsync, lock, deadline, log_began)
                else:
                    cut_off.end()
            is_loading = answer[:8] == "-LOADING"
            if is_loading:
                deadline = began + max(budget, patience)
                if not reported and time.monotonic() - began > LONG:
                    reported = True
                    report(f"embedded server is loading its data, {self._data_size()}; waiting for it")
            if time.monotonic() >= deadline:
                if not is_loading:
                    raise self._unanswered(f"{answer} from {address}")
                fix = f"try again later, or see {self.log}"
                raise StoreUnreachable("embedded server is still loading its data", self._data_size(), fix)
            time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
            pause = min(pause * 1.5, LONGEST_PAUSE)

    def _raise_durability(self, address: Path, found: list[Reply], appendfsync: str, deadline: float) -> str:
        """Set the running server's ``appendfsync`` unless it has that value. ``found``: its answer to CONFIG GET; empty
        if any value is fine. Returns the server's answer if that is not OK, else an empty string."""
        if not found or found[0][-1] == appendfsync:
            return ""
        raised = self._ask(address, [f"CONFIG SET appendfsync {appendfsync}"], deadline)
        return "" if raised == ["OK"] else f"{raised} to appendfsync {appendfsync}"

    def stop(self, budget: float = 10.0) -> bool:
        """Stop the server, after it has written its append-only file, and wait until its lock is free. Returns whether
        one was running. StoreUnreachable if it still runs after ``budget`` seconds."""
        if not self.check_directory():
            return False
        deadline = time.monotonic() + budget
        address, signalled = self._linked_address(), ""
        cut_off = _CutOff(self.directory, address)
        while (lock := take_lock(self.directory, self._access)) is None:
            info = self._info(address, ["INFO server"], deadline)
            running = info.get("process_id", "")
            if running and signalled and running != signalled:
                return True  # it has ended, and another one was already started
            if running:
                self._ask(address, ["SHUTDOWN"], deadline)
                signalled = running
            else:
                signalled = cut_off.end() or signalled
            if time.monotonic() >= deadline:
                raise self._unanswered("still there after SHUTDOWN" if signalled else f"nothing from {address}")
            time.sleep(FIRST_PAUSE)
        os.close(lock)
        return bool(signalled)

    def status(self) -> ServerStatus | None:
        """The status of the running server; None if none runs. StoreUnreachable if a server is alive but does not
        answer within 2 s, or if, on Linux, its socket was removed."""
        if not self.check_directory():
            return None
        address = self._linked_address()
        info = self._info(address, ["INFO", "CONFIG GET appendfsync"], time.monotonic() + STATUS_BUDGET)
        if not info:
            pid = process_without_socket(self.directory, address)
            if pid is not None:
                fix = "the next launch starts it again, or stop it (pollconsumer store stop)"
                raise StoreUnreachable("embedded server's socket is gone", f"process {pid}, {address}", fix)
            return None
        valkey, appendfsync = info.get("valkey_version"), info["appendfsync"]
        return ServerStatus(
            pid=int(info["process_id"]),
            version=f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}",
            uptime_seconds=int(info["uptime_in_seconds"]),
            used_memory_bytes=int(info["used_memory"]),
            aof_enabled=info["aof_enabled"] == "1",
            durability={kept: name for name, kept in APPENDFSYNC.items()}.get(appendfsync, appendfsync),
            socket=address,
            directory=self.directory,
            program=Path(info["executable"]),
        )

    def _linked_address(self) -> Path:
        address = self.socket
        link_address(self.directory, address)
        return address

    def _start(self, address: Path, appendfsync: str, lock: int, deadline: float, log_began: int | None) -> int:
        """Start a server that inherits ``lock``. Returns its log's size before the start. ``log_began``: the log's size
        before an earlier start, whose server has ended; if that server was never ready, raises the reason."""
        from pollconsumer.runtime.embedded.start import start, why_ended

        try:
            reason = None if log_began is None else why_ended(self.directory, log_began)
            if reason is not None:
                raise reason
            return start(
                self.directory,
                address,
                self._access,
                appendfsync=appendfsync,
                lock=lock,
                deadline=deadline,
                named=self._program,
            )
        finally:
            os.close(lock)

    def _info(self, address: Path, commands: list[str], deadline: float) -> dict[str, str]:
        """The server's fields of INFO and of CONFIG GET, the two ``commands``. Empty if no server listens."""
        replies = self._ask(address, commands, deadline)
        fields: dict[str, str] = {}
        for reply in replies:
            if isinstance(reply, list):
                fields.update(zip(reply[::2], reply[1::2], strict=True))
            elif reply.startswith("-"):
                raise self._unanswered(f"{reply} from {address}")
            else:
                fields.update(line.partition(":")[::2] for line in reply.splitlines() if ":" in line)
        return fields

    def _ask(self, address: Path, commands: list[str], deadline: float) -> list[Reply]:
        try:
            return ask(address, commands, deadline)
        except TimeoutError:
            raise self._unanswered(f"silence from {address}") from None
        except PermissionError:
            raise PermissionDenied(
                "embedded server's socket is another user's", address, "see who started it"
            ) from None
        except OSError as error:
            raise self._unanswered(f"{error.strerror} at {address}") from None

    def _data_size(self) -> str:
        files = (self.directory / AOF_DIRECTORY).glob("*.aof")
        return f"{sum(file.stat().st_size for file in files) / 1e6:.0f} MB"

    def _unanswered(self, found: str) -> StoreUnreachable:
        try:
            process = f"process {int((self.directory / PID).read_text())}"
        except (OSError, ValueError):
            process = "the process that holds its lock"
        fix = f"see {self.log} and whether {process} is stopped or overloaded"
        return StoreUnreachable("embedded server does not answer", found, fix)


class _CutOff:
    """Ends a server whose socket was removed, so that nobody can reach it. SIGTERM lets it write all its data first."""

    def __init__(self, directory: Path, address: Path) -> None:
        self._directory, self._address = directory, address
        self._since: tuple[int, float] | None = None
        self._server_pid = ""

    def end(self) -> str:
        """Send SIGTERM to the server if its socket has been missing for `GONE` seconds. Called repeatedly, while no
        server listens and the lock is held. Returns the server's pid once it was signalled, else ""."""
        pid = None if self._server_pid else process_without_socket(self._directory, self._address)
        if pid is None:
            self._since = None
        elif self._since is None or self._since[0] != pid:
            self._since = pid, time.monotonic()
        elif time.monotonic() - self._since[1] >= GONE:
            with suppress(ProcessLookupError, PermissionError):  # only its own user can end another user's server
                os.kill(pid, signal.SIGTERM)
            self._server_pid = str(pid)
        return self._server_pid
