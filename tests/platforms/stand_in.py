"""A launcher in real time: it starts real processes by the rule that forecasts have for it."""

from __future__ import annotations

import heapq
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from tests.forecast.launchers import SEEN_FOR, Decision, LaunchedProcess, Launcher


@dataclass
class _Launch:
    """``started`` is when the launcher started it, ``process_started`` when its process began, after its pod had."""

    started: float
    process_started: float | None = None
    process: subprocess.Popen[bytes] | None = None
    ended: float | None = None


class StandIn:
    """``looks``: when the launcher looks from an instant on, and at which ticks, in seconds since the epoch. ``spawn``
    starts the process of a launch, in a group of its own; ``delay`` draws the time from the decision until then. In it
    the launch counts as alive."""

    def __init__(
        self,
        launcher: Launcher,
        looks: Callable[[float], Iterator[tuple[float, tuple[float, ...]]]],
        spawn: Callable[[], subprocess.Popen[bytes]],
        delay: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.dropped = 0
        self._launcher, self._looks_from, self._spawn, self._delay = launcher, looks, spawn, delay
        self._launches: list[_Launch] = []
        self._waiting: list[threading.Thread] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = count()
        self._happened = queue.SimpleQueue[Callable[[], None] | None]()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._looks = self._looks_from(time.time())
        self._next_look()
        self._thread.start()

    def stop(self) -> None:
        """No more launches, not even those whose pod is starting; those that run go on."""
        self._happened.put(None)
        self._thread.join()

    def processes(self) -> list[LaunchedProcess]:
        """Of the launches whose process was started."""
        started = [each for each in self._launches if each.process_started is not None]
        return [LaunchedProcess(each.process_started or 0.0, each.ended) for each in started]

    def mean_delay(self) -> float:
        """From the decision to start a launch to the start of its process."""
        delays = [each.process_started - each.started for each in self._launches if each.process_started is not None]
        return sum(delays) / len(delays) if delays else 0.0

    def terminate(self) -> None:
        """SIGTERM to the process groups of those that run. Returns when they have ended."""
        for each in self._launches:
            if each.process is not None and each.ended is None:
                with suppress(ProcessLookupError):
                    os.killpg(each.process.pid, signal.SIGTERM)
        for waiting in self._waiting:
            waiting.join()

    def _run(self) -> None:
        while True:
            try:
                wait = max(0.0, self._due[0][0] - time.time()) if self._due else None
                happened = self._happened.get(timeout=wait)
            except queue.Empty:
                heapq.heappop(self._due)[2]()
            else:
                if happened is None:
                    return
                happened()

    def _at(self, instant: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (instant, next(self._count), do))

    def _next_look(self) -> None:
        if (following := next(self._looks, None)) is not None:
            at, ticks = following
            self._at(at, lambda: self._look(ticks))

    def _look(self, ticks: tuple[float, ...]) -> None:
        self._apply(self._launcher.look(time.time(), ticks, self._seen()))
        self._next_look()

    def _seen(self) -> list[LaunchedProcess]:
        since = time.time() - SEEN_FOR
        return [LaunchedProcess(each.started, each.ended) for each in self._launches if (each.ended or since) >= since]

    def _apply(self, decision: Decision) -> None:
        """None of the launchers that it stands in for kills."""
        self.dropped += decision.dropped
        for start in decision.starts:
            launch = _Launch(start)
            self._launches.append(launch)
            self._at(start + self._delay(), partial(self._begin, launch))

    def _begin(self, launch: _Launch) -> None:
        launch.process_started = time.time()
        launch.process = process = self._spawn()
        self._waiting.append(threading.Thread(target=self._await_end, args=(launch, process), daemon=True))
        self._waiting[-1].start()

    def _await_end(self, launch: _Launch, process: subprocess.Popen[Any]) -> None:
        process.wait()
        launch.ended = time.time()
        self._happened.put(lambda: self._apply(self._launcher.ended(time.time(), self._seen())))
