"""Tests in several processes, with ``--processes``: forks of one that has imported and collected everything.

Each takes the next piece of a list as soon as it has done one. What is slow and mostly waits comes first, and then in
turn with what keeps a processor busy, so that nobody waits for one test in the end.
"""

from __future__ import annotations

import os
import signal
import struct
import traceback
from contextlib import suppress
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pytest

from tests.forks import Forks

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = (
    "faults/test_chaos.py",
    "dashboard/test_slow_clients.py",
    "interface/test_text_from_outside.py",
    "interface/test_named_files.py",
    "system/test_example_checks.py",
    "system/test_limits.py",
    "interruptions/test_interruptions.py",
    "moving/test_moving_commands.py",
    "failovers/test_launches.py",
)
"""Files with tests of more than seven seconds."""
MOST = 20
"""Tests in a piece."""
PIECE = struct.Struct("=HH")
"""Indexes of its first test and of the one after its last, of 65,535 at most."""


class Worker(NamedTuple):
    pid: int
    reports: Connection


class SideBySide:
    """A plugin of pytest."""

    def __init__(self, processes: int) -> None:
        self._processes = processes

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None
        session.items[:], ends = _ordered(session.items)
        reading, writing = os.pipe()
        begins = [0, *ends]
        os.write(writing, b"".join(PIECE.pack(*piece) for piece in zip(begins, ends, strict=False)))
        os.close(writing)
        for forks in Forks.made:
            forks.begin()
        workers = [self._fork(number, session, reading) for number in range(self._processes)]
        try:
            _report(session, workers, reading)
        except BaseException:
            for worker in workers:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGINT)
            raise
        os.close(reading)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        return True

    def _fork(self, number: int, session: pytest.Session, pieces: int) -> Worker:
        reports, writing = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)  # a Ctrl-C comes once, from the process that reports
                reports.close()
                _work(number, session, pieces, writing)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        writing.close()
        return Worker(pid, reports)


class Reporter:
    """The plugin that tells of tests in a process that runs some."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send((nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed:
            report.sections = []  # which nobody shows
        self._connection.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _ordered(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[int]]:
    """The tests, and where each piece ends: what is long, then what waits in turn with the rest."""
    first, waiting, others = list[list[pytest.Item]](), list[list[pytest.Item]](), list[list[pytest.Item]]()
    for path, group in groupby(items, lambda item: item.path):
        tests = [*group]
        if path.as_posix().endswith(FIRST):
            first += ([test] for test in tests)
        elif "system" in path.parts:
            waiting += ([test] for test in tests)
        else:
            others += (tests[at : at + MOST] for at in range(0, len(tests), MOST))
    shares = [(at / len(kind), piece) for kind in (waiting, others) for at, piece in enumerate(kind)]
    pieces = [*first, *(piece for _, piece in sorted(shares, key=lambda share: share[0]))]
    ends = [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece))
    return [test for piece in pieces for test in piece], ends[1:]


def _work(number: int, session: pytest.Session, pieces: int, reports: Connection) -> NoReturn:
    config = session.config
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(Reporter(config, reports))
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # to files that the others have, too
    capture.start_global_capturing()
    places: Any = vars(config)["_tmp_path_factory"]
    place: Path = places.getbasetemp() / str(number)
    place.mkdir(0o700)
    vars(places)["_basetemp"] = place
    try:
        while piece := os.read(pieces, PIECE.size):
            begin, end = PIECE.unpack(piece)
            for at in range(begin, end):
                following: pytest.Item | pytest.Session = session.items[at + 1] if at + 1 < end else session
                config.hook.pytest_runtest_protocol(item=session.items[at], nextitem=following)
    finally:
        vars(session)["_setupstate"].teardown_exact(None)
    reports.send(None)
    os._exit(0)


def _report(session: pytest.Session, workers: list[Worker], pieces: int) -> None:
    """Tell the plugins of this process what the workers tell, until all have ended."""
    hook, config = session.config.hook, session.config
    running: dict[Connection, tuple[str, tuple[str, int | None, str]]] = {}
    left = {worker.reports: worker.pid for worker in workers}
    while left:
        for connection, told in _told([*left]):
            if isinstance(told, dict):
                report = hook.pytest_report_from_serializable(config=config, data=told)
                hook.pytest_runtest_logreport(report=report)
                if report.when == "teardown":
                    nodeid, location = running.pop(connection)
                    hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
            elif told:
                running[connection] = told
                hook.pytest_runtest_logstart(nodeid=told[0], location=told[1])
            else:
                code = os.waitstatus_to_exitcode(os.waitpid(left.pop(connection), 0)[1])
                if code or connection in running:
                    test, location = running.get(connection, ("the end of a process of tests", ("", None, "")))
                    said = f"its process ended with {code}, and runs none of the next tests"
                    died = pytest.TestReport(test, location, {}, "failed", said, "call")
                    hook.pytest_runtest_logreport(report=died)
        while session.shouldfail and os.read(pieces, 65536):
            pass  # the others go on to the ends of their pieces


def _told(connections: list[Connection]) -> Iterator[tuple[Connection, Any]]:
    """What each has sent; None for one that has ended."""
    for connection in wait(connections):
        assert isinstance(connection, Connection)
        try:
            told = connection.recv()
        except EOFError:
            told = None
        yield connection, told
