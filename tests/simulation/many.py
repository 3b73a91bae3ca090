"""Many stories, in several processes, and their sums."""

from __future__ import annotations

from collections import Counter
from itertools import count, islice
from multiprocessing import get_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.story import Report

AT_ONCE = 200
"""Seeds that are given to the processes together."""


def stories(tell: Callable[[int], Report], first: int, last: int | None, processes: int) -> Iterator[Report]:
    """Of the seeds from ``first``, in their order, without end if ``last`` is None."""
    seeds = count(first) if last is None else iter(range(first, last + 1))
    if processes == 1:
        yield from map(tell, seeds)
        return
    with get_context("spawn").Pool(processes) as pool:
        while together := list(islice(seeds, AT_ONCE)):
            yield from pool.imap(tell, together)


class Tally:
    """The sums of stories."""

    def __init__(self) -> None:
        self.seeds = self.violated = self.launches = self.executions = 0
        self.virtual_seconds = self.processor_seconds = 0.0
        self.faults = Counter[str]()
        """By what was done, without its numbers."""
        self.met = Counter[str]()

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.violated += bool(report.violations)
        self.launches += report.launches
        self.executions += report.executions
        self.virtual_seconds += report.virtual_seconds
        self.processor_seconds += report.processor_seconds
        self.met.update(report.met)
        for fault in report.faults:
            self.faults[" ".join(word for word in fault.split() if not word[:1].isdigit())] += 1

    def __str__(self) -> str:
        speed = self.launches / self.processor_seconds if self.processor_seconds else 0.0
        return (
            f"{self.launches} launches of a consumer in {self.virtual_seconds / 86400:.1f} virtual days, "
            f"{self.executions} executions, {self.faults.total()} faults, {self.seeds} seeds, {self.violated} with "
            f"violations; {self.processor_seconds:.0f} s of processor time, {speed:.1f} launches a second of it"
        )
