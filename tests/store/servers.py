"""Servers that tests connect to, and what stands on one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pollconsumer.store.client.patience import COMMAND_TIMEOUT, Budget, Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pollconsumer.store.client.wire import Wire

    MakeWire = Callable[[Callable[[], Patience], Callable[[Wire], int | None] | None], Wire]


class Impatient(Patience):
    """Nothing is repeated; each answer may take its time."""

    def left(self) -> float:
        return 0.0

    def pause(self, seconds: float) -> None: ...

    def for_one_answer(self, blocking: float = 0.0) -> float:  # noqa: ARG002  the protocol has it
        return COMMAND_TIMEOUT


class MovedClock:
    """Moves by so many microseconds at each command, and by what a test lets pass: with one, all acts of a test are in
    the same millisecond, with a million, each is in a second of its own. In seconds since the epoch."""

    def __init__(self, microseconds: int) -> None:
        self._step = microseconds
        self.set()

    def set(self) -> None:
        """Show what the machine's clock shows."""
        self._now = time.time_ns() // 1000

    def __call__(self) -> float:
        return self._now / 1_000_000

    def moving(self, execute: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
        """``execute``, before which it moves."""

        def moved(command: Sequence[Any]) -> Any:
            self._now += self._step
            return execute(command)

        return moved

    def pass_time(self, seconds: float) -> None:
        self._now += round(seconds * 1_000_000)


class Server:
    """A server, and the connections that a test has to it. ``url`` and ``pid`` are a real one's. ``pass_time`` lets so
    many seconds pass on it, by ``clock`` if it has one of its own."""

    def __init__(self, make: MakeWire, url: str = "", pid: int = 0, clock: MovedClock | None = None) -> None:
        self.url, self.pid, self._clock = url, pid, clock
        self.pass_time = clock.pass_time if clock else time.sleep
        self._make = make
        self._wires: list[Wire] = []

    def wire(
        self, patience: Callable[[], Patience] = lambda: Budget(10), greet: Callable[[Wire], int | None] | None = None
    ) -> Wire:
        """One more connection, closed when the test ends."""
        wire = self._make(patience, greet)
        self._wires.append(wire)
        return wire

    def clear(self) -> None:
        """Forget all data and close every connection."""
        wire = self.wire()
        wire.command("FLUSHALL")
        for wire in self._wires:
            wire.close()
        self._wires.clear()
        if self._clock:
            self._clock.set()


_CONTENT: dict[bytes, tuple[tuple[str, ...], tuple[str | int, ...]]] = {
    b"string": (("GET",), ()),
    b"list": (("LRANGE",), (0, -1)),
    b"zset": (("ZRANGE",), (0, -1, "WITHSCORES")),
    b"set": (("SMEMBERS",), ()),
    b"hash": (("HGETALL",), ()),
}


def snapshot(wire: Wire) -> dict[str, Any]:
    """Everything on the server but what calls were answered, comparable."""
    content: dict[str, Any] = {}
    kept = (b"}:act:", b"}:last_answer:")
    for key in sorted(each for each in wire.command("KEYS", "*") if not any(one in each for one in kept)):
        kind = wire.command("TYPE", key)
        if kind == b"none":  # it has expired since
            continue
        before, after = _CONTENT[kind]
        found = wire.command(*before, key, *after)
        if kind == b"set":
            found = sorted(found)
        if kind == b"hash":
            found = dict(zip(found[::2], found[1::2], strict=True))
        content[key.decode()] = found
    return content


def server_us(wire: Wire) -> int:
    """The server's clock, in epoch microseconds."""
    seconds, microseconds = wire.command("TIME")
    return int(seconds) * 1_000_000 + int(microseconds)


def server_ms(wire: Wire) -> int:
    return server_us(wire) // 1000


def await_next_ms(wire: Wire) -> None:
    """What a test does before and after has instants of its own: the server's clock shows another millisecond."""
    before = server_ms(wire)
    while server_ms(wire) == before:
        pass
