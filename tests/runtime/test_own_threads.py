"""What a launch must not wait for: a thread that never runs, a reader that does not read."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import pytest

from pollconsumer.runtime.launch.heartbeat import report_line
from pollconsumer.runtime.system import own_threads
from pollconsumer.runtime.system.system_limits import met_by
from tests.site import PATIENCE


def test_a_thread_that_dies_before_it_runs_is_refused_and_hangs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_threads, "START_WITHIN", 0.1)
    monkeypatch.setattr(threading.Thread, "_bootstrap", lambda _: None)
    with pytest.raises(RuntimeError, match=own_threads.NO_THREAD):
        own_threads.start_for_others("handler-0", print)


@pytest.mark.parametrize("said", ["can't start new thread", "unable to start watchdog thread"])
def test_whoever_says_that_no_thread_can_be_started_the_limit_is_named(said: str) -> None:
    assert str(met_by(RuntimeError(said))).startswith("can't start new thread: ")
    assert met_by(RuntimeError("another")) is None


def test_the_heartbeat_waits_for_no_reader() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 65536)
    os.set_blocking(writer, True)
    telling = own_threads.start_thread("output", report_line, "warning: late", writer)
    try:
        assert telling.join(PATIENCE)
    finally:
        os.close(reader)  # ends a write that waits
        os.close(writer)


def test_a_thread_that_fails_is_one_line_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(own_threads, "report", [said.append])

    def fail() -> None:
        raise SystemExit(3)

    assert own_threads.start_thread("reporter", fail).join(PATIENCE)
    own_threads.start_for_others("handler-0", fail).join(PATIENCE)
    line = "the thread {} has ended: it raised SystemExit: 3"
    assert said == [line.format("reporter"), line.format("handler-0")]


def test_a_program_without_our_log_gets_the_line_too(caplog: pytest.LogCaptureFixture) -> None:
    assert own_threads.start_thread("calls", lambda: 1 / 0).join(PATIENCE)
    assert caplog.messages == ["the thread calls has ended: it raised ZeroDivisionError: division by zero"]
