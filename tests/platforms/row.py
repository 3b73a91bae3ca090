"""Measures one row in namespaces of its own, and writes its figures as JSON.

``python -m tests.platforms.row ROW MINUTES DIRECTORY RESULT [keep]``: its place is made in DIRECTORY.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.window import OUR_OWN
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.reading.inspector import Inspector
from tests.cron.place import Place, Unfit, enter, replaced
from tests.cron.report import Note, expected_start, read_notes
from tests.cron.scenarios import MINUTE, producing, sleep_until, wait_for
from tests.forecast.figures import Spread
from tests.platforms.figures import Figures, figures, launches_of, overruns
from tests.platforms.launching import Launching, launching
from tests.platforms.reckoning import Costs, best_coverage
from tests.platforms.rows import ROWS, Row

FIRST_WITHIN = 130.0
"""Seconds in which the first message must have been handled: a tick, a pod's start, an occurrence each ten seconds."""
LAST_WITHIN = 140.0
LOOKS_WITHIN = 5.0
"""Seconds from a tick in which every launcher has looked."""
MOST_LAUNCHES = 5000
RECURRENCE = '\n[recurrences.tick]\nhandler = "tick"\nevery = "10s"\nmissed = "all"\n'


def main() -> int:
    name, minutes, directory, result, *keep = sys.argv[1:]
    try:
        enter()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        Path(result).write_text(json.dumps(measure(ROWS[name], int(minutes), directory, keep=bool(keep))))
    except Unfit as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 2
    return 0


def measure(row: Row, minutes: int, directory: str, *, keep: bool) -> dict[str, Any]:
    with Place("measured", parent=directory, keep=keep) as place:
        _configure(place, row)
        place.call("store", "start").check_returncode()
        launches = launching(place, row)
        try:
            begin = (time.time() + 5) // MINUTE * MINUTE + MINUTE
            sleep_until(begin - 3)
            launches.start()
            left = _let_it_work(place, launches, begin, minutes)
            due = [begin + minute * MINUTE for minute in range(minutes + 1)]
            return _result(place, row, launches, due, left)
        finally:
            launches.close()


def _let_it_work(place: Place, launches: Launching, begin: float, minutes: int) -> int:
    """Launches from ``begin`` on, for so many minutes and one more, which handles what is left. Returns the number of
    messages that were left."""
    handled = place.directory / "handled"
    wait_for(lambda: handled.exists() and handled.stat().st_size > 0, FIRST_WITHIN)
    with producing(place, "brief"):
        sleep_until(begin + minutes * MINUTE)
    with suppress(TimeoutError):
        wait_for(lambda: not _unhandled(place), LAST_WITHIN, every=0.5)
    sleep_until(begin + minutes * MINUTE + LOOKS_WITHIN)
    launches.stop()
    launches.terminate()
    return len(_unhandled(place))


def _configure(place: Place, row: Row) -> None:
    config = place.config.read_text()
    place.config.write_text(replaced(config, 'handoff = "deadline"', f'handoff = "{row.handoff}"') + RECURRENCE)


def _accepted(place: Place) -> set[int]:
    return {int(line.split()[0]) for line in (place.directory / "accepted").read_text().splitlines()}


def _unhandled(place: Place) -> set[int]:
    return _accepted(place) - {note.sequence for note in _notes(place) if note.mark == "end"}


def _notes(place: Place) -> list[Note]:
    return read_notes(place.directory / "handled")


def _result(place: Place, row: Row, launching: Launching, due: list[float], left: int) -> dict[str, Any]:
    platform, notes, processes = row.platform, _notes(place), launching.processes()
    entries = Inspector(_wire(place), "pollconsumer").launches(MOST_LAUNCHES)
    launches = launches_of(processes, entries, notes)
    offsets = [(each.started + OUR_OWN) % MINUTE - OUR_OWN for each in processes]
    if platform.rule is LauncherRule.DROP:
        limits = {tick: tick + launching.offset - platform.reaped_late for tick in due}
    elif platform.rule is LauncherRule.QUEUE:
        limits = {tick: tick + min(offsets) for tick in due}
    else:
        starts = [each.started for each in processes]
        limits = {tick: expected_start(tick, starts) for tick in due}
    late = overruns(launches, limits, platform.rule, row.handoff)
    found = figures(launches, notes, _accepted(place), late)
    scatter = sum(offsets) / len(offsets) - min(offsets)
    costs = Costs(found.start_up, found.exit, launching.delay(), scatter, platform.reaped_late)
    return {
        **as_json(found),
        "dropped": launching.dropped(due),
        "best": best_coverage(platform.rule, row.handoff, costs),
        "printed": launching.printed(),
        "left": left,
        "costs": costs._asdict(),
        "ledger": entries,
        "processes": processes,
    }


def _wire(place: Place) -> Wire:
    return Wire(f"unix://{place.directory}/.local/share/pollconsumer/server.sock", lambda: Budget(5))


def as_json(found: Figures) -> dict[str, Any]:
    return {name: [*value] if isinstance(value, Spread) else value for name, value in found._asdict().items()}


if __name__ == "__main__":
    sys.exit(main())
