"""An installation whose wall clock is set twice while it works: real launches, a real server, a clock of ours.

The wall clock alone, as where a machine's is set. `faketime` sets sleeps of the monotonic clock with it: where a Python
sleeps until an instant of that (since 3.11), each sleep fails, or lasts too long.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.choices import Missed
from tests.site import Site

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

SOURCE = Path(__file__).with_name("wall_clock.c")
EVERY, WINDOW = 2.0, 15.0
"""Seconds between two occurrences; of a launch."""
LAUNCHES, SET_IN, BACK_IN = 6, 1, 3
"""Rounds, each with a launch of `run` and one of `move`; those in which, or after which, the clock is set. One that
handles the rest comes after them."""
QUICK = ["--min-margin", "0s", "--estimated-duration", "500ms", "--tolerance-factor", "1"]
"""What lets a launch of a busy machine begin what it can."""
RATED, MOST, PERIOD = 8, 2, 4
"""Messages with a rate; handed out in so many seconds at most."""
NAMES = [f"{kind}-{missed}" for kind in ("configured", "put") for missed in Missed]
CONFIG = "".join(
    f'[recurrences.configured-{missed}]\nhandler = "occur"\nevery = "{EVERY:.0f}s"\nmissed = "{missed}"\n'
    for missed in Missed
)
HANDLERS = """
import os, time
from pathlib import Path
from pollconsumer import Context, PollConsumer
app = PollConsumer()

def note(context):
    with (Path(__file__).with_name("notes")).open("a") as notes:
        notes.write(f"{context.id} {time.monotonic()}\\n")

@app.handler
def occur(context: Context) -> None:
    note(context)

@app.handler
def other(context: Context) -> None:
    note(context)
    time.sleep(0.3)
"""


class Step(NamedTuple):
    """``seconds`` forward or backward, and back afterwards. ``under`` launches, or between two. ``alone``: the server's
    clock, not the machine's."""

    seconds: float
    under: bool
    alone: bool

    def __str__(self) -> str:
        place = "under a launch" if self.under else "between launches"
        return f"{self.seconds:+9.0f} s, {place}, {'the server alone' if self.alone else 'the machine'}"


class Seen(NamedTuple):
    """``begun``: on the monotonic clock, when the handler of each message began. ``sets``: when the clock was set to
    which offset. ``printed``: by launches, on standard error."""

    step: Step
    begun: list[tuple[str, float]]
    sets: list[tuple[float, float]]
    began: float
    ended: float
    wall: float
    """Wall time less monotonic time, as the machine has them."""
    recurrences: dict[str, dict[str, Any]]
    ledger: list[dict[str, Any]]
    completed: list[dict[str, Any]]
    found: list[set[str]]
    """By `doctor`: while the clock was set, and at the end."""
    printed: list[str]
    codes: Sequence[int | None]


class Stepped:
    """``clock``: SOURCE, compiled."""

    def __init__(self, step: Step, clock: Path) -> None:
        self._step, self._site = step, Site(CONFIG)
        (self._site.directory / "handlers.py").write_text(HANDLERS)
        self._offset = self._site.directory / "offset"
        self._faked = {"LD_PRELOAD": str(clock), "WALL_CLOCK": str(self._offset)}
        self._sets: list[tuple[float, float]] = []
        self._printed: list[str] = []
        self._codes: list[int | None] = []
        self._found: list[set[str]] = []

    def run(self) -> Seen:
        site, began = self._site, time.monotonic()
        try:
            self._set(0.0)
            self._command("store", "start", server=True)
            self._prepare()
            for number in range(LAUNCHES):
                self._round({SET_IN: self._step.seconds, BACK_IN: 0.0}.get(number))
                if number == BACK_IN - 1:
                    self._examine()
            self._examine()
            ended = time.monotonic()
            self._end(self._start("run", "--until-empty", "--timeout", "60s", *QUICK))
            listed = {each["name"]: each for each in self._json("recurrences", "list")}
            begun = [(name, float(at)) for name, at in map(str.split, site.notes())]
            return Seen(
                self._step, begun, self._sets[1:], began, ended, time.time() - time.monotonic(), listed,
                self._json("launches", "--limit", "100"), self._json("list", "--state", "completed", "--limit", "1000"),
                self._found, self._printed, self._codes,
            )  # fmt: skip
        finally:
            site.close()

    def _prepare(self) -> None:
        for missed in Missed:
            self._command(
                "recurrences", "add", f"put-{missed}", "occur", "--every", f"{EVERY:.0f}s", "--missed", missed
            )
        for number in range(RATED):
            self._command(
                "enqueue", "other", "--id", f"rated-{number}", "--rate", f"{MOST}/{PERIOD}s", "--rate-key", "k"
            )
        self._command("enqueue", "other", "--id", "soon", "--in", f"{2 * WINDOW}s")
        self._command("enqueue", "other", "--id", "tomorrow", "--in", "1d")

    def _round(self, offset: float | None) -> None:
        window = ["--timeout", f"{WINDOW:.0f}s", "--idle-time", "1s"]
        launches = [self._start("run", *window, *QUICK), self._start("move", *window)]
        if offset is not None and self._step.under:
            time.sleep(WINDOW / 2)
            self._set(offset)
        for launch in launches:
            self._end(launch)
        if offset is not None and not self._step.under:
            self._set(offset)

    def _end(self, launch: subprocess.Popen[str]) -> None:
        _, errors = launch.communicate(timeout=90)
        self._codes.append(launch.returncode)
        self._printed += errors.splitlines()

    def _set(self, offset: float) -> None:
        new = self._offset.with_name("new")
        new.write_text(f"{offset:.0f}\n")
        self._sets.append((time.monotonic(), offset))
        new.replace(self._offset)

    def _examine(self) -> None:
        self._found.append({each["name"] for each in self._json("doctor")["findings"]})

    def _start(self, *arguments: str, server: bool = False) -> subprocess.Popen[str]:
        faked = {} if self._step.alone and not server else self._faked
        return self._site.start_program([sys.executable, "-m", "pollconsumer", *arguments], **faked)

    def _command(self, *arguments: str, server: bool = False) -> str:
        output, errors = self._start(*arguments, server=server).communicate(timeout=90)
        self._printed += errors.splitlines()
        return output

    def _json(self, *arguments: str) -> Any:
        return json.loads(self._command(*arguments, "--json"))
