"""A trial: steady producers and launches on a trio of servers, failovers, and what came of it."""

from __future__ import annotations

import time
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.reading.inspector import Inspector
from tests.failovers import kinds
from tests.failovers.report import Report, Span, report
from tests.failovers.servers import Trio, await_true
from tests.failovers.tested import client_module
from tests.faults.installation import NAMESPACE
from tests.faults.platform import Platform
from tests.network import Host, Network
from tests.trials.place import Place
from tests.trials.recording import ACCEPTED, EXECUTED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.trials.place import Command

CONFIGURATION = """
handlers = ["tests.trials.handlers"]
{durability}
[consumer]
timeout = "6s"
grace = "2s"
min_margin = "200ms"
idle_time = "500ms"
estimated_duration = "1ms"
concurrency = {slots}
{strict}
"""
PERIOD, PERIOD_OF_EACH = 4.0, 6.0
"""Seconds between launches of a host; of each of three."""
BEGUN = 5_000
"""Bytes about calls, a hundred or so, before the first failover."""
APART = 5.0
"""Seconds from the promotion to the end of a partition: a lease lapses after three."""
LONGEST_STANDSTILL = 120.0
"""Seconds in which no message that is left at the end is handled."""
PARTED: dict[str, dict[str, Any]] = {
    "partition": {},
    "refusing": {"min-replicas-to-write": 1, "min-replicas-max-lag": 2},
}
"""Kinds for which each server is on a host of its own, with a producer and launches; and options of the servers."""
KINDS = (*kinds.BY_NAME, *PARTED)
ON_ONE_TRIO = [kind for kind in kinds.BY_NAME if kind != "unwatched"]
"""Kinds that may come in turn: on servers of one host, with Sentinels."""
WENT_BACK = "store rolled back"


class Load(NamedTuple):
    """A producer enqueues ``size`` messages in one call each ``pace`` seconds, on average; a launch has so many
    ``slots``. ``between``: seconds from when all servers are of one mind to the next failover."""

    pace: float
    size: int = 1
    slots: int = 1
    between: float = 2.0


STEADY, STEADY_OF_EACH, BULK = Load(0.005), Load(0.02), Load(0.08, size=200, slots=16, between=8.0)
"""With one producer; with three; until many messages are acknowledged."""


class Trial:
    """Failovers of the ``chosen`` kinds: of one, or of several that are `ON_ONE_TRIO`. ``replicas`` that `enqueue` and
    launches wait for; None without ``durability = "strict"``. ``by_client``: by redis-py's client of the Sentinels,
    and not by a URL."""

    def __init__(self, chosen: list[str], replicas: int | None, *, by_client: bool = False) -> None:
        self._chosen, self._replicas, self._by_client = chosen, replicas, by_client
        self._network: Network | None = None
        self._trio: Trio | None = None
        self.places: list[Place] = []
        self._producers: list[Command] = []

    def run(self, times: int, messages: int = 0) -> Report:
        """Each kind so many ``times``; or all in turn, until so many ``messages`` are acknowledged. NotPermitted
        without the right to make hosts, for kinds that need them."""
        period, load = PERIOD, BULK if messages else STEADY
        if not PARTED.keys().isdisjoint(self._chosen):
            period, load = PERIOD_OF_EACH, STEADY_OF_EACH
        trio, spans = self._start(load.slots), list[Span]()
        for number, place in enumerate(self.places):
            words = ("-m", "tests.trials.producing", f"m{number}", str(load.pace), str(load.size))
            self._producers.append(place.start_python(*words))
        platforms = [Platform(place, period, [[]], move=False) for place in self.places]
        try:
            await_true(lambda: self._written(EXECUTED) > BEGUN)
            for kind in self.in_turn(messages) if messages else self._chosen * times:
                time.sleep(load.between)
                spans.append(self._fail_over(trio, kind))
            time.sleep(load.between)
        finally:
            for producer in self._producers:
                producer.process.terminate()
            for platform in platforms:
                platform.stop()
        launches = [launch for platform in platforms for launch in platform.launches]
        for command in (*self._producers, *launches):
            command.process.wait(60)
        wire = Wire(f"unix://{trio.primary().socket}", lambda: Budget(30.0))
        self._drain(wire)
        found = report(self.places, wire, spans)
        wire.close()
        return found

    def _drain(self, wire: Wire) -> None:
        """Handle what is left, while it gets less."""
        left, until = _left(wire), time.monotonic() + LONGEST_STANDSTILL
        while left and time.monotonic() < until:
            self.places[0].run("-q", "run", "--until-empty")
            before, left = left, _left(wire)
            if left < before:
                until = time.monotonic() + LONGEST_STANDSTILL

    def in_turn(self, messages: int) -> Iterator[str]:
        """The chosen kinds in turn, until so many messages are acknowledged."""
        for kind in cycle(self._chosen):
            if sum((place.directory / ACCEPTED).read_bytes().count(b"\n") for place in self.places) >= messages:
                return
            yield kind

    def _start(self, slots: int) -> Trio:
        hosts, (kind, *_) = list[Host](), self._chosen
        if kind in PARTED:
            network = self._network = Network()
            hosts += [Host(network) for _ in range(3)]
        self._trio = Trio(
            proxied=not hosts,
            hosts=hosts or (None, None, None),
            options=PARTED.get(kind),
            watched=kind != "unwatched",
        )
        durability = "" if self._replicas is None else 'durability = "strict"'
        strict = "" if self._replicas is None else f"[strict]\nreplicas = {self._replicas}\n"
        self.places += [Place(self._trio.url, host) for host in hosts] or [Place(self._trio.url)]
        for place in self.places:
            place.configure(CONFIGURATION.format(durability=durability, slots=slots, strict=strict))
            if self._by_client:
                place.bring(client_module(self._trio))
        return self._trio

    def directories(self) -> list[Path]:
        """Of the servers, and of each place."""
        trio = [] if self._trio is None else [self._trio.directory]
        return [*trio, *(place.directory for place in self.places)]

    def close(self, *, keep: bool) -> None:
        for place in self.places:
            place.close(keep=keep)
        if self._trio is not None:
            self._trio.close(keep=keep)
        if self._network is not None:
            self._network.remove()

    def _fail_over(self, trio: Trio, kind: str) -> Span:
        began = time.time()
        if self._network is not None:
            return self._part(trio, self._network.hosts, began)._replace(kind=kind)
        kinds.BY_NAME[kind](trio)
        trio.await_ready()
        return Span(began, time.time(), kind=kind)

    def _part(self, trio: Trio, hosts: list[Host], began: float) -> Span:
        """Cut off the primary, with the producer and the launches of its host; until a while after the others have
        another."""
        cut = trio.servers.index(trio.primary())
        said = self._producers[cut].errors().count(WENT_BACK)
        kinds.replaced(trio, hosts[cut].cut)
        promoted = time.time()
        time.sleep(APART)
        hosts[cut].heal()
        healed = time.time()
        trio.await_ready()
        accepted, handled = self._written(ACCEPTED, cut), self._written(EXECUTED)
        await_true(lambda: self._written(ACCEPTED, cut) > accepted and self._written(EXECUTED) > handled)
        told = self._producers[cut].errors().count(WENT_BACK) > said
        return Span(began, time.time(), cut, promoted, healed, told)

    def _written(self, name: str, at: int | None = None) -> int:
        """Bytes, at one of the places or at all."""
        paths = [place.directory / name for place in (self.places if at is None else [self.places[at]])]
        return sum(path.stat().st_size for path in paths if path.exists())


def _left(wire: Wire) -> int:
    counts = Inspector(wire, NAMESPACE).overview().queues
    return sum(queue.ready + queue.reserved + queue.scheduled for queue in counts)
