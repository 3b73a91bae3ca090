"""A process has one bounded time for all that it does before it exits."""

from __future__ import annotations

import subprocess
import sys

BEGINNING = """
import threading, time
from pollconsumer.runtime.system.watchdog import at_the_end, before_exit, finish, leave, leave_by

def say(text):
    print(text, flush=True)

at_the_end(lambda: say("noted"))
"""
AN_HOUR = "leave_by(time.monotonic() + 3600)"


def end(*lines: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a process that does this."""
    script = "\n".join((BEGINNING, *lines))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_late_acts_come_in_order_before_functions_of_atexit_and_the_last_act_after_these() -> None:
    acts = ("before_exit(lambda left: say('hooks'))", "before_exit(lambda left: say('answer'))")
    code, output, errors = end("import atexit", "atexit.register(say, 'atexit')", *acts, "finish(7)", "leave(7)")
    assert (code, output.split(), errors) == (7, ["hooks", "answer", "atexit", "noted"], "")


def test_all_late_acts_share_one_time_of_which_some_is_left_for_functions_of_atexit() -> None:
    wait = "before_exit(lambda left: (times.append(left()), time.sleep(0.3), times.append(left())))"
    shown = "say(times[0] <= 4.5 and times == sorted(times, reverse=True) and times[0] - times[3] >= 0.6)"
    _, output, _ = end("times = []", AN_HOUR, wait, wait, "finish(0)", shown, "leave(0)")
    assert output.split() == ["True", "noted"]


def test_what_hangs_is_cut_off_at_the_instant_by_which_the_process_must_be_gone_and_the_exit_is_noted() -> None:
    hang = "before_exit(lambda left: threading.Event().wait())"
    code, output, errors = end("leave_by(time.monotonic() + 0.1)", hang, "finish(3)")
    assert (code, output) == (3, "noted\n")
    assert errors.endswith("took too long; they were cut off\n")


def test_a_last_act_that_hangs_keeps_no_process_that_is_cut_off() -> None:
    hang = ("at_the_end(lambda: threading.Event().wait())", "before_exit(lambda left: threading.Event().wait())")
    code, output, _ = end("leave_by(time.monotonic() + 0.1)", *hang, "finish(3)")
    assert (code, output) == (3, "")
