"""A stand-in starts processes by its launcher's rule."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator

from tests.forecast.launchers import Launcher, SystemdTimer, TickDropper
from tests.platforms.stand_in import StandIn


class Processes:
    """Those of a stand-in: each lives until it is ended here."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self._processes: list[subprocess.Popen[bytes]] = []

    def spawn(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "infinity"], start_new_session=True)
        self._processes.append(process)
        self.started.release()
        return process

    def end_last(self) -> None:
        self._processes[-1].terminate()
        self._processes[-1].wait()


def three_looks(launcher: Launcher) -> tuple[StandIn, Processes, threading.Event]:
    """A stand-in that looks three times at once, and the event that it has."""
    processes, looked = Processes(), threading.Event()

    def looks(now: float) -> Iterator[tuple[float, tuple[float, ...]]]:
        for _ in range(3):
            yield now, (now,)
        looked.set()

    return StandIn(launcher, looks, processes.spawn), processes, looked


def test_a_launcher_that_drops_ticks_starts_one_process_and_counts_the_others() -> None:
    stand_in, processes, looked = three_looks(TickDropper())
    stand_in.start()
    assert looked.wait(30)
    assert processes.started.acquire(timeout=30)
    stand_in.stop()
    stand_in.terminate()
    assert (len(stand_in.processes()), stand_in.dropped) == (1, 2)


def test_a_launcher_that_queues_starts_the_next_process_when_the_first_has_ended() -> None:
    stand_in, processes, looked = three_looks(SystemdTimer())
    stand_in.start()
    assert looked.wait(30)
    assert processes.started.acquire(timeout=30)
    processes.end_last()
    assert processes.started.acquire(timeout=30)
    stand_in.stop()
    stand_in.terminate()
    first, second = stand_in.processes()
    assert first.ended is not None
    assert first.ended <= second.started
    assert stand_in.dropped == 1
