"""A trial: steady producers and launches on a trio of servers, failovers of one kind, and what came of it."""

from __future__ import annotations

import re
import signal
import statistics
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.store.connecting.patience import Budget
from pollconsumer.store.connecting.wire import Wire
from pollconsumer.store.reading.inspector import Inspector
from tests.failovers.servers import Server, Trio, await_true
from tests.faults import store_view
from tests.faults.about_launches import (
    exit_codes_are_those_of_the_contract,
    fences_rise,
    no_process_stays,
    nothing_is_printed_but_warnings,
)
from tests.faults.history import History
from tests.faults.installation import NAMESPACE, Place
from tests.faults.platform import Platform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONFIGURATION = """
handlers = ["handlers"]
{durability}
[consumer]
timeout = "6s"
grace = "2s"
min_margin = "200ms"
idle_time = "500ms"
estimated_duration = "1ms"
{strict}
"""
PERIOD = 4.0
BETWEEN = 2.0
"""Seconds from when all servers are of one mind to the next failover."""
AROUND = 2.0
"""Seconds before a failover in which a change may have been unreplicated."""
LONGEST_DRAIN = 120.0
KINDS = ("kill", "suspend", "switch", "cut")


class Report(NamedTuple):
    """``pauses``: by failover, seconds, of acknowledgements and of handlers' starts. ``twice_elsewhere``: not around a
    failover."""

    acknowledged: int
    in_doubt: int
    lost: list[int]
    twice: int
    twice_elsewhere: list[int]
    enqueueing_paused: list[float]
    handling_paused: list[float]
    codes: Counter[str]
    lines: Counter[str]
    violations: list[str]


class Trial:
    """``replicas`` that `enqueue` and launches wait for; None without ``durability = "strict"``."""

    def __init__(self, replicas: int | None) -> None:
        self.trio = Trio(proxied=True)
        self.place = Place(self.trio.url)
        durability = "" if replicas is None else 'durability = "strict"'
        strict = "" if replicas is None else f"[strict]\nreplicas = {replicas}\n"
        self.place.configure(CONFIGURATION.format(durability=durability, strict=strict), "handlers.py", of=__file__)
        self._wire = Wire(self.trio.url, lambda: Budget(30.0))
        self._spans: list[tuple[float, float]] = []

    def run(self, kind: str, times: int) -> Report:
        producer = self.place.start_python("-m", "tests.failovers.producer")
        platform = Platform(self.place, PERIOD, [[]], move=False)
        try:
            await_true(lambda: len(self._calls()) > 100)
            for _ in range(times):
                time.sleep(BETWEEN)
                began = time.time()
                getattr(self, kind)()
                self.trio.await_ready()
                self._spans.append((began, time.time()))
            time.sleep(BETWEEN)
        finally:
            producer.process.terminate()
            platform.stop()
        producer.process.wait(60)
        for launch in platform.launches:
            launch.process.wait(60)
        until = time.monotonic() + LONGEST_DRAIN
        while self._left() and time.monotonic() < until:
            self.place.run("-q", "run", "--until-empty")
        return self._report()

    # Each returns once another server is the primary.

    def kill(self) -> None:
        before = self._replaced(lambda: self.trio.primary().kill())
        before.start()

    def suspend(self) -> None:
        before = self._replaced(lambda: self.trio.primary().process.send_signal(signal.SIGSTOP))
        before.process.send_signal(signal.SIGCONT)

    def switch(self) -> None:
        self.trio.fail_over()

    def cut(self) -> None:
        """Nobody reaches it, while it goes on; later what was sent to it arrives."""
        before = self.trio.primary()
        self._replaced(lambda: before.cut_off(True))
        before.cut_off(False)

    def _replaced(self, act: Callable[[], object]) -> Server:
        before = self.trio.primary()
        act()
        await_true(lambda: self.trio.primary() is not before)
        await_true(lambda: self.trio.primary().info()["role"] == "master")
        return before

    def _left(self) -> int:
        counts = Inspector(self._wire, NAMESPACE).overview().queues
        return sum(queue.ready + queue.reserved + queue.scheduled for queue in counts)

    def _calls(self) -> list[tuple[int, float]]:
        """Numbers of messages, and when their handler began."""
        return [(int(n), float(at)) for n, _, at in _lines(self.place.directory / "calls")]

    def _report(self) -> Report:
        acknowledged = [
            (int(n), float(at), int(doubts)) for n, at, doubts in _lines(self.place.directory / "acknowledged")
        ]
        calls = sorted(self._calls(), key=lambda call: call[1])
        times = Counter(n for n, _ in calls)
        again = {n for n, count in times.items() if count > 1}
        first = dict(reversed(calls))
        around = {n for n in again if any(since - AROUND <= first[n] <= until for since, until in self._spans)}
        commands = [command.ran() for command in self.place.commands]
        history = History(
            commands=[ran for ran in commands if ran.arguments],
            leases=store_view.leases(self._wire, NAMESPACE),
            strays=[f"{pid}: {' '.join(words)}" for pid, words in self.place.processes()],
        )
        invariants = (
            exit_codes_are_those_of_the_contract, fences_rise, no_process_stays, nothing_is_printed_but_warnings
        )  # fmt: skip
        return Report(
            acknowledged=len(acknowledged),
            in_doubt=sum(doubts > 0 for *_, doubts in acknowledged),
            lost=[n for n, *_ in acknowledged if n not in times],
            twice=len(again),
            twice_elsewhere=sorted(again - around),
            enqueueing_paused=list(self._pauses([at for _, at, _ in acknowledged])),
            handling_paused=list(self._pauses([at for _, at in calls])),
            codes=Counter(f"{'run' if ran.arguments else 'producer'} {ran.code}" for ran in commands),
            lines=Counter(_anonymous(line) for ran in commands for line in ran.errors.splitlines()),
            violations=[line for invariant in invariants for line in invariant(history)],
        )

    def _pauses(self, instants: list[float]) -> Iterator[float]:
        """The longest around each failover, in seconds."""
        for since, until in self._spans:
            gaps = [after - before for before, after in pairwise(instants) if after >= since and before <= until]
            yield max(gaps, default=0.0)

    def close(self, *, keep: bool) -> None:
        self._wire.close()
        self.place.close(keep=keep)
        self.trio.close()


def _lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def _anonymous(line: str) -> str:
    """Without what differs from time to time, so that lines can be counted."""
    return re.sub(r"\d+", "N", re.sub(r"(m\d+)(, m\d+)*( and \d+ more)?", "IDS", line))


def shown(report: Report) -> Iterator[str]:
    yield (
        f"{report.acknowledged} acknowledged ({report.in_doubt} after a call in doubt), {len(report.lost)} lost, "
        f"{report.twice} handled twice, {len(report.twice_elsewhere)} of them not around a failover"
    )
    for what, pauses in (("enqueueing", report.enqueueing_paused), ("handling", report.handling_paused)):
        if pauses:
            yield f"{what} paused: p50 {statistics.median(pauses):.2f} s, max {max(pauses):.2f} s"
    yield f"exit codes: {dict(sorted(report.codes.items()))}"
    for line, count in report.lines.most_common():
        yield f"{count} x {line}"
    for line in report.violations:
        yield f"VIOLATION: {line}"
