"""A connection to a server: a socket, with hiredis for the protocol.

redis-py's connection does more than launches need: its import took half of their start, and its work most of the time
of each call."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Generator, Sequence
from time import monotonic
from typing import Any, Protocol

import hiredis

from pollconsumer.store.client.address import Address
from pollconsumer.store.client.own_descriptors import Opened, above_standard, wait_readable
from pollconsumer.store.client.patience import COMMAND_TIMEOUT, Patience, left_until
from pollconsumer.store.client.replies import ErrorReply

MOST_BYTES = 64 * 1024
"""Maximum bytes of one read or write."""
_NONE = object()
"""What the parser returns until a reply is complete."""
_TEXT = frozenset({bytes, str})
LONGEST_VALUE = 64 << 20
"""Maximum bytes of a value, or of a line, in a reply. A message has 1 MiB at most; a page has a value for each."""
_TIME = struct.Struct("ll")
"""Seconds and microseconds, in the system's format for socket timeouts."""

Command = tuple[Any, ...]


class Connection(Protocol):
    """What the store needs of a connection to a server: our own, or one of redis-py's with a user's options.

    Pipelines, scripts, repetitions, clusters and confirmations by replicas are built upon these methods. Each method
    raises OSError if the connection is lost."""

    @property
    def location(self) -> str:
        """A text for the server: host and port, or a path. Connections to the same server have the same text."""

    def connect(self, timeout: float) -> None:
        """Open the connection, within ``timeout`` seconds. ErrorReply if the server refuses the login."""

    def send(self, commands: Sequence[Command]) -> None:
        """Send ``commands`` in one write."""

    def read(self, timeout: float) -> Any:
        """The next reply; an error reply is returned as an `ErrorReply`. TimeoutError after ``timeout`` seconds."""

    def readable(self, timeout: float) -> bool:
        """Whether a reply arrives, or the connection ends, within ``timeout`` seconds."""

    def fileno(self) -> int | None:
        """The descriptor to wait on. None if there is none: then the caller must call `readable` now and then."""

    def close(self) -> None: ...


class SocketConnection:
    """Our own connection. Without TLS, its socket is blocking, with timeouts of the system: a timeout of Python's needs
    one more system call for each operation.

    A reply or a command that is transferred in pieces has one time limit for all pieces."""

    _connected = False

    def __init__(self, address: Address, patience: Callable[[], Patience] | None = None) -> None:
        """``patience``: a reply that has begun to arrive, or a command in pieces, may take as long as patience lasts,
        if that is longer than the timeout."""
        self._address, self._patience = address, patience
        self._late: tuple[type[OSError], ...] = (BlockingIOError,)

    def connect(self, timeout: float) -> None:
        until = monotonic() + timeout
        with above_standard():
            opened = self._address.open(timeout)
        try:
            if self._address.tls is not None:
                from pollconsumer.store.client.transport import encrypted

                opened.settimeout(left_until(until))
                opened, self._late = encrypted(opened, self._address), ()
            else:
                opened.setblocking(True)
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout))
        except BaseException:
            opened.close()
            raise
        self._socket, self._opened, self._connected = opened, Opened.now(opened.fileno()), True
        self._pending = getattr(opened, "pending", int)
        self._reader = hiredis.Reader(replyError=ErrorReply, errors="replace", notEnoughData=_NONE)
        self._timeout = 0.0
        try:
            if commands := self._address.login():
                self.send(commands)
            for _ in commands:
                if isinstance(reply := self.read(left_until(until)), ErrorReply):
                    raise reply
        except BaseException:
            self.close()
            raise

    @property
    def location(self) -> str:
        return self._address.path or f"{self._address.host}:{self._address.port}"

    def is_to(self, address: Address) -> bool:
        """Whether the connection is open and leads to ``address``."""
        return self._connected and self._address == address and self._opened.is_open()

    def ask(self, command: Command, timeout: float) -> Any:
        """The reply to one command. An error reply is raised."""
        self.send([command])
        if isinstance(reply := self.read(timeout), ErrorReply):
            raise reply
        return reply

    def send(self, commands: Sequence[Command]) -> None:
        text = packed(commands[0]) if len(commands) == 1 else b"".join(map(packed, commands))
        if len(text) <= MOST_BYTES:
            self._socket.sendall(text)
            return
        left, until = memoryview(text), monotonic() + self._at_most(COMMAND_TIMEOUT)
        while left:
            left_until(until)
            left = left[self._socket.send(left[:MOST_BYTES]) :]

    def read(self, timeout: float) -> Any:
        reader, within, until, received = self._reader, timeout, 0.0, b""
        try:
            while (reply := reader.gets()) is _NONE:
                if received:  # a part of the reply has come
                    until = until or monotonic() + self._at_most(timeout)
                    if reader.len() > LONGEST_VALUE:
                        raise ConnectionError(f"a value of more than {LONGEST_VALUE >> 20} MiB")
                    if (left := until - monotonic()) <= 0:
                        raise TimeoutError("no whole answer in time")
                    within = min(timeout, left)
                if within != self._timeout:
                    self._limit(within)
                received = self._socket.recv(MOST_BYTES)
                if not received:
                    raise ConnectionResetError("connection closed by the server")
                reader.feed(received)
        except self._late:
            raise TimeoutError(f"no answer within {timeout:.3g} s") from None
        except hiredis.ProtocolError as error:
            raise ConnectionError(f"not an answer of Redis: {error}") from None
        except MemoryError:
            raise ConnectionError("an answer that does not fit into memory") from None
        return reply

    def raw(self, command: Command, timeout: float) -> Generator[bytes]:
        """Send a command after which the server does not speak the protocol any more, and yield the bytes that it
        sends. TimeoutError if nothing comes within ``timeout`` seconds."""
        self.send([command])
        self._limit(timeout)
        try:
            while received := self._socket.recv(MOST_BYTES):
                yield received
        except self._late:
            raise TimeoutError(f"nothing within {timeout:.3g} s") from None

    def _limit(self, timeout: float) -> None:
        """Set the timeout of reads in seconds; with TLS also that of writes."""
        if self._late:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(timeout))
        else:
            self._socket.settimeout(timeout)  # Python's timeout, which limits a whole encrypted record
        self._timeout = timeout

    def _at_most(self, timeout: float) -> float:
        return timeout if self._patience is None else max(timeout, self._patience().left())

    def readable(self, timeout: float) -> bool:
        if self._reader.has_data() or self._pending():
            return True
        return bool(wait_readable([self._socket.fileno()], timeout))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection, unless a handler has closed its descriptor: another file may have the number now."""
        if self._connected:
            self._connected = False
            if not self._opened.is_open():
                self._socket.detach()
            self._socket.close()

    __del__ = close


def packed(command: Command) -> bytes:
    """The bytes of a command. Numbers are turned into text here: hiredis would crash the interpreter if a signal
    handler raised while hiredis did it."""
    if not _TEXT.issuperset(map(type, command)):
        command = tuple([part if isinstance(part, (bytes, str)) else str(part) for part in command])
    text: bytes = hiredis.pack_command(command)
    return text


def _timeval(seconds: float) -> bytes:
    microseconds = max(1, round(seconds * 1_000_000))  # zero would mean no limit
    return _TIME.pack(*divmod(microseconds, 1_000_000))
