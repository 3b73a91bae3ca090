"""A minimal client for the embedded server, in the inline form of the Redis protocol.

The store's client is slow to import and retries. Here commands are sent once, and a timeout is an answer too.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import BinaryIO

Reply = str | list[str]

SHORTEST_WAIT = 0.01  # even past the deadline a healthy server can answer


def ask(address: Path, commands: list[str], deadline: float) -> list[Reply]:
    """The replies, one for each command: errors and simple strings with their first character (``+PONG``,
    ``-LOADING …``).

    An empty list if no server listens, or it hung up before the last reply. TimeoutError if it has not answered by
    ``deadline`` (``time.monotonic``); OSError for other failures.
    """
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(max(deadline - time.monotonic(), SHORTEST_WAIT))
            try:
                connection.connect(str(address))
                connection.sendall("".join(f"{command}\r\n" for command in commands).encode())
                with connection.makefile("rb") as stream:
                    return [_read(stream) for _ in commands]
            except (FileNotFoundError, ConnectionError):
                return []
            except BlockingIOError:
                # A stalled server with a full backlog: it is alive, so this is a timeout.
                if time.monotonic() >= deadline:
                    raise TimeoutError from None
        time.sleep(SHORTEST_WAIT)


def _read(stream: BinaryIO) -> Reply:
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError
    kind, rest = line[:1], line[1:-2]
    if kind == b"*":
        return [str(_read(stream)) for _ in range(int(rest))]
    if kind == b"$":
        data = stream.read(int(rest) + 2)
        if not data.endswith(b"\r\n"):
            raise ConnectionResetError
        return data[:-2].decode("utf-8", "replace")
    return line[:-2].decode("utf-8", "replace")
