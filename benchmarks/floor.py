"""The least Python that does the same: our scripts over a bare socket, without options, errors, lease or window.

What a measure takes beyond its floor is ours to save; what the floor takes is the server's, the interpreter's and the
system's.
"""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING, Any, Self

import hiredis

from benchmarks.place import Figure, plain_wire, server_seconds
from pollconsumer.runtime.session.exchange import TRIM_EVERY
from pollconsumer.store.client.address import address_of
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.maintenance import DEFAULT
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.records.rows import pack6
from pollconsumer.store.scripts import Script, Scripts

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire

NAMESPACE, QUEUE = "floor", "default"
BATCH, BULK = 192, 100
HOLDER = Claim("floor:0", "1", "floor")
RECORD = b"\0plain\n"
"""What follows the instant in a record without options, without its payload."""


class Bare:
    """A socket, and hiredis."""

    def __init__(self, url: str) -> None:
        self.socket = address_of(url).open(5.0)
        self.socket.setblocking(True)
        self.reader = hiredis.Reader()
        self.scripts, self.keys = Scripts(), Keys(NAMESPACE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def script(self, name: str) -> tuple[Script, list[str]]:
        """Loaded, with its keys."""
        script = self.scripts[name]
        self.call(("SCRIPT", "LOAD", script.code))
        return script, self.keys.names_for(script.keys, QUEUE)

    def call(self, *commands: tuple[Any, ...]) -> Any:
        """The last reply."""
        self.socket.sendall(b"".join(map(hiredis.pack_command, commands)))
        for _ in commands:
            while (reply := self.reader.gets()) is False:
                self.reader.feed(self.socket.recv(65536))
            if isinstance(reply, Exception):
                raise reply
        return reply


def produce(url: str, messages: int, batch: int = 1) -> list[Figure]:
    """Enqueue ``{"n": …}`` in scripts of ``batch``."""
    with Bare(url) as bare:
        return _produce(bare, plain_wire(url), messages, batch)


def _produce(bare: Bare, wire: Wire, messages: int, batch: int) -> list[Figure]:
    script, keys = bare.script("enqueue")
    head = ("EVALSHA", script.sha, len(keys) - 1, *keys[:-1])
    began, cpu, server = time.perf_counter(), time.process_time(), server_seconds(wire)
    numbers = iter(range(messages))
    while several := list(itertools.islice(numbers, batch)):
        arguments: list[Any] = [len(several), ""]
        for n in several:
            arguments += (f"{time.time_ns():028x}", RECORD + json.dumps({"n": n}).encode())
        bare.call((*head, *arguments))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return _figures(seconds, cpu, server_seconds(wire) - server, messages)


def consume(url: str, messages: int) -> list[Figure]:
    """Reserve, decode, call, time and settle what `produce` enqueued, and forget as many as a launch does."""
    store = RedisStore(plain_wire(url), NAMESPACE)
    store.maintenance.announce(HOLDER, QUEUE)
    with Bare(url) as bare:
        bare.script("trim")
        trim = store.wire.script(*store.maintenance.trimming(QUEUE, DEFAULT))
        return _consume(bare, plain_wire(url), messages, trim)


def _consume(bare: Bare, wire: Wire, messages: int, trim: tuple[Any, ...]) -> list[Figure]:
    script, keys = bare.script("step")
    keys[-1] += f":{HOLDER.group}"
    head = ("EVALSHA", script.sha, len(keys), *keys, HOLDER.lease_name, HOLDER.fence, pack6(1), 60_000, BATCH, "")
    settled, runs = list[bytes](), list[list[Any]]()
    handled, completed, untrimmed, payload_at = 0, 0, 0, len(RECORD) + 10
    decoder: Any = json.JSONDecoder()
    clock, decode = time.monotonic, decoder.scan_once
    began, cpu, server = time.perf_counter(), time.process_time(), server_seconds(wire)
    while handled < messages or completed:
        step = (*head, completed, completed + 3 * len(runs), 0, *settled, *itertools.chain.from_iterable(runs))
        untrimmed += completed
        commands = [step]
        if untrimmed >= TRIM_EVERY:
            commands, untrimmed = [trim, step], 0
        at, _, _, ids, records, changes, *_ = bare.call(*commands)
        read_at, settled, runs, completed, last, row = clock(), ids, [], len(ids), None, b""
        row_from = dict(zip(changes[::2], changes[1::2], strict=True))
        for position, record in enumerate(records, 1):
            row = row_from.get(position, row)
            payload, _ = decode(record[payload_at:].decode(), 0)
            started = clock()
            _handle(**payload)
            ended = clock()
            instants = row, at + int((started - read_at) * 1000), at + int((ended - read_at) * 1000)
            if instants != last:
                last = instants
                stamps = pack6(instants[1]) + pack6(instants[2])
                runs.append([0, row, b"%bc%b%b%b" % (row[:1], row[2:20], stamps, row[32:])])
            runs[-1][0] += 1
        handled += completed
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return _figures(seconds, cpu, server_seconds(wire) - server, messages)


def _handle(n: int) -> None:
    pass


def _figures(seconds: float, cpu: float, server: float, messages: int) -> list[Figure]:
    return [
        Figure("floor", messages / seconds, "/s"),
        Figure("floor, client", cpu / messages * 1e6, "µs"),
        Figure("floor, server", server / messages * 1e6, "µs"),
    ]
