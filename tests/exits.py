"""What is demanded of every process of ours that a test starts: a documented exit code, and no traceback.

A test in which a handler ends its launch, or in which a bug of ours is staged, says so:
``@pytest.mark.ends_with(7)``, ``@pytest.mark.ends_with(1, traceback=True)``.
"""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import pytest

PATCHED = "patched.py"
"""A program of a test's own that runs the command."""
DOCUMENTED = frozenset({0, 2, 65, 66, 69, 73, 75, 77, 78, 124, 130, 143})
"""All but 1, which is a bug of ours, or the end of a launch whose handler keeps the interpreter's lock."""
KILLED = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})
"""Ends that a test, or the system, makes of a process."""

OURS = re.compile(rf"-m pollconsumer\b|/pollconsumer( |$)|/{PATCHED}")


class Process(Protocol):
    @property
    def args(self) -> Any: ...
    @property
    def returncode(self) -> Any: ...


class Run(NamedTuple):
    command: str
    code: int
    errors: str


class Runs:
    """Processes of ours whose end was waited for."""

    def __init__(self) -> None:
        self._seen: dict[int, Run] = {}
        self._kept: list[Process] = []  # so that no other takes the place of one of them

    def watch(self) -> None:
        """From now on, for the rest of the session."""
        original = subprocess.Popen.communicate
        runs = self

        def communicate(process: subprocess.Popen[Any], *args: Any, **keywords: Any) -> tuple[Any, Any]:
            output, errors = original(process, *args, **keywords)
            runs.note(process, errors)
            return output, errors

        subprocess.Popen.communicate = communicate  # type: ignore[method-assign, assignment]  # no plugin sees every process

    def note(self, process: Process, errors: str | bytes | None) -> None:
        """That a process ended, and what it printed."""
        if _is_ours(process.args):
            text = errors.decode(errors="replace") if isinstance(errors, bytes) else errors or ""
            self._seen[id(process)] = Run(str(process.args), process.returncode, text)
            self._kept.append(process)

    def begin(self) -> None:
        self._seen.clear()
        self._kept.clear()

    def objections(self, allowed: pytest.Mark | None) -> list[str]:
        """What was not to happen since `begin`, or did not and was to."""
        codes = DOCUMENTED | KILLED | frozenset(allowed.args if allowed else ())
        may_trace = bool(allowed and allowed.kwargs.get("traceback"))
        runs = self._seen.values()
        found = [f"{run.command} ended with {run.code}, no documented code" for run in runs if run.code not in codes]
        if not may_trace:
            found += [f"{run.command} printed\n{run.errors}" for run in runs if _traced(run)]
        elif not any(_traced(run) for run in runs):
            found.append("no traceback was printed")
        return found


def _traced(run: Run) -> bool:
    """Not of a module of the user's that cannot be imported: ``check`` shows it, above the line that says where."""
    of_import = run.code == 78 and ", at /" in run.errors
    return "Traceback (most recent call last)" in run.errors and not of_import


def _is_ours(args: Any) -> bool:
    """Whether that command line runs the command, by itself or in a shell's script."""
    words = [args] if isinstance(args, str | bytes | Path) else args
    return OURS.search(" ".join(map(str, words))) is not None


RUNS = Runs()
