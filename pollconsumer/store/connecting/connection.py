"""A connection to a server: a socket, and hiredis for its protocol.

redis-py's connection does more than a launch needs: half of a launch's start was its import, and most of the time of a
call was spent in it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, Protocol

import hiredis

from pollconsumer.store.connecting.address import Address
from pollconsumer.store.connecting.exact_wait import wait_readable
from pollconsumer.store.connecting.own_descriptors import Opened, above_standard
from pollconsumer.store.connecting.replies import ErrorReply

MOST_BYTES = 64 * 1024
"""Read at once."""
_NONE = object()
"""What the reader returns before a reply is complete."""
_TIME = struct.Struct("ll")
"""Seconds and microseconds, as the system takes them."""

Command = tuple[Any, ...]


class Connection(Protocol):
    """What `Wire` uses. Each method raises OSError if the connection is lost."""

    @property
    def place(self) -> str:
        """Where its server is: equal for two connections to the same one."""

    def connect(self, timeout: float) -> None:
        """Raises ErrorReply if the server refuses the login."""

    def send(self, commands: Sequence[Command]) -> None:
        """In one write."""

    def read(self, timeout: float) -> Any:
        """The next reply, an `ErrorReply` for an error; TimeoutError if there is none within so many seconds."""

    def readable(self, timeout: float) -> bool:
        """Whether a reply, or the connection's end, arrives within so many seconds."""

    def fileno(self) -> int | None:
        """The descriptor to wait on."""

    def close(self) -> None: ...


class SocketConnection:
    """Its socket blocks, and the system limits its waits: a limit of Python's costs a system call for each of them."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connected = False
        self._late: tuple[type[OSError], ...] = (BlockingIOError,)

    def connect(self, timeout: float) -> None:
        with above_standard():
            opened = self._address.open(timeout)
        try:
            if self._address.tls is not None:
                from pollconsumer.store.connecting.transport import LATE, encrypted

                opened, self._late = encrypted(opened, self._address), LATE
            opened.setblocking(True)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout))
        except BaseException:
            opened.close()
            raise
        self._socket, self._opened, self._connected = opened, Opened.now(opened.fileno()), True
        self._pending = getattr(opened, "pending", int)
        self._reader = hiredis.Reader(replyError=ErrorReply, errors="replace", notEnoughData=_NONE)
        self._timeout = 0.0
        self._log_in(timeout)

    @property
    def place(self) -> str:
        return self._address.path or f"{self._address.host}:{self._address.port}"

    def is_to(self, address: Address) -> bool:
        """Whether it is open, and leads to ``address``."""
        return self._connected and self._address == address and self._opened.is_open()

    def ask(self, command: Command, timeout: float) -> Any:
        """The reply to one command; raises an ErrorReply."""
        self.send([command])
        if isinstance(reply := self.read(timeout), ErrorReply):
            raise reply
        return reply

    def send(self, commands: Sequence[Command]) -> None:
        if len(commands) == 1:
            self._socket.sendall(hiredis.pack_command(commands[0]))
        else:
            self._socket.sendall(b"".join([hiredis.pack_command(command) for command in commands]))

    def read(self, timeout: float) -> Any:
        reader = self._reader
        try:
            while (reply := reader.gets()) is _NONE:
                if timeout != self._timeout:
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(timeout))
                    self._timeout = timeout
                received = self._socket.recv(MOST_BYTES)
                if not received:
                    raise ConnectionResetError("connection closed by the server")
                reader.feed(received)
        except self._late:
            raise TimeoutError(f"no answer within {timeout:.3g} s") from None
        except hiredis.ProtocolError as error:
            raise ConnectionError(str(error)) from None
        return reply

    def readable(self, timeout: float) -> bool:
        if self._reader.has_data() or self._pending():
            return True
        return bool(wait_readable([self._socket.fileno()], timeout))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Close it, unless a handler did: its number may be another file's by now."""
        if self._connected:
            self._connected = False
            if not self._opened.is_open():
                self._socket.detach()
            self._socket.close()

    __del__ = close

    def _log_in(self, timeout: float) -> None:
        commands = self._address.login()
        try:
            if commands:
                self.send(commands)
            for _ in commands:
                reply = self.read(timeout)
                if isinstance(reply, ErrorReply):
                    raise reply
        except BaseException:
            self.close()
            raise


def _timeval(seconds: float) -> bytes:
    microseconds = max(1, round(seconds * 1_000_000))  # zero is for no limit
    return _TIME.pack(*divmod(microseconds, 1_000_000))
