"""What stands between our processes and the server: it passes bytes on, late, in part, or not at all."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK = 65536


class Proxy:
    """Listens on a port of this host, and passes on to a unix socket. Its methods may be called from any thread."""

    def __init__(self, target: Path) -> None:
        self.target = target
        """Where new connections lead."""
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio leaves that of accepted ones
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._to_lose = 0
        self.delay = 0.0
        """Seconds by which every chunk is late."""
        self.silent = False
        """Nothing is passed on, in either direction, and no connection is closed."""
        self.slices = 0
        """Most bytes in one piece; 0 for any number."""
        self.away = False
        """New connections are closed at once."""
        self._thread.start()

    def heal(self) -> None:
        self.delay, self.silent, self.slices, self.away, self._to_lose = 0.0, False, 0, False, 0

    def lose_replies(self, count: int) -> None:
        """Cut the connections of the next so many replies: the first half of each arrives, at most."""
        self._to_lose = count

    def cut(self) -> None:
        """Reset every connection."""
        self._call(self._abort)

    def half_close(self) -> None:
        """Say to every client that no more is to come, and go on listening to it."""
        self._call(self._end_replies)

    def close(self) -> None:
        self._call(self._loop.stop)
        self._thread.join()

    def _call(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._listener))
        self._loop.run_forever()
        server.close()
        self._abort()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self._open.add(to_client)
        to_server: asyncio.StreamWriter | None = None
        with suppress(OSError, asyncio.CancelledError):
            if not self.away:
                from_server, to_server = await asyncio.open_unix_connection(str(self.target))
                self._open.add(to_server)
                requests = asyncio.ensure_future(self._pass(from_client, to_server, replies=False))
                answers = asyncio.ensure_future(self._pass(from_server, to_client, replies=True))
                try:
                    await asyncio.wait([requests, answers], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    requests.cancel(), answers.cancel()
                    await asyncio.gather(requests, answers, return_exceptions=True)
        for writer in (to_client, to_server):
            if writer is not None:
                self._open.discard(writer)
                writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool) -> None:
        while data := await reader.read(CHUNK):
            if self.delay:
                await asyncio.sleep(self.delay)
            while self.silent:
                await asyncio.sleep(0.01)
            if replies and self._to_lose > 0:
                self._to_lose -= 1
                writer.write(data[: len(data) // 2])
                return
            size = self.slices or len(data)
            for at in range(0, len(data), size):
                writer.write(data[at : at + size])
                await writer.drain()
                if self.slices:
                    await asyncio.sleep(0)

    def _abort(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def _end_replies(self) -> None:
        for writer in self._open:
            if writer.get_extra_info("sockname") and writer.can_write_eof():
                with suppress(OSError):
                    writer.write_eof()
