"""A row's figures, from the notes of its handlers, the processes of its launches, and the ledger. All in seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pollconsumer.core.choices import HandOff, LauncherRule
from pollconsumer.core.window import OUR_OWN
from tests.cron.report import MATCHES_WITHIN, Note
from tests.forecast.figures import Spread, spread
from tests.forecast.launchers import LaunchedProcess

OCCURRENCES_EVERY = 10


class Launch(NamedTuple):
    """A launch that held the lease from ``acquired`` to ``released``, by the ledger. ``started`` and ``ended`` are its
    process's, ``worked_until`` is the end of its last handler."""

    started: float
    ended: float
    acquired: float
    released: float
    worked_until: float


class Figures(NamedTuple):
    """``coverage``: the share of time in which the lease was held, from the first launch's acquisition to the last
    one's. ``silence``: the longest time in which no immediate message was started. ``start_up`` and ``exit`` are means:
    from the start of a process until it had the lease, if it did not wait for it; from its release to the process's
    end."""

    launches: int
    coverage: float
    gap: Spread
    silence: float
    latency: Spread
    due: Spread
    occurrences: Spread
    lost: int
    twice: int
    early: int
    overruns: int
    start_up: float
    exit: float


def launches_of(
    processes: Sequence[LaunchedProcess], entries: Iterable[Mapping[str, Any]], notes: Iterable[Note]
) -> list[Launch]:
    """Those that held the lease and ended, by the ledger. ValueError for one without a process."""
    worked = {note.pid: note.at for note in notes}  # in order of time
    launches = []
    for entry in entries:
        if "acquired_ms" not in entry or "ended_ms" not in entry:
            continue
        started, acquired, released = (entry[name] / 1000 for name in ("started_ms", "acquired_ms", "ended_ms"))
        process = min(processes, key=lambda each: abs(each.started - started))
        if process.ended is None or abs(process.started - started) > MATCHES_WITHIN:
            raise ValueError(f"no process of the launch that started at {started:.3f}")
        launches.append(Launch(process.started, process.ended, acquired, released, worked.get(entry["pid"], acquired)))
    return sorted(launches, key=lambda each: each.acquired)


def figures(launches: Sequence[Launch], notes: Sequence[Note], accepted: Collection[int], overruns: int) -> Figures:
    """``accepted``: the sequences of enqueued messages."""
    gaps = [max(0.0, after.acquired - before.released) for before, after in pairwise(launches)]
    whole = launches[-1].acquired - launches[0].acquired
    first = {note.sequence: note for note in reversed(notes) if note.mark == "start"}.values()
    starts = Counter(note.sequence for note in notes if note.mark == "start")
    ends = {note.sequence for note in notes if note.mark == "end"}
    ticks = Counter(note.sequence for note in notes if note.mark == "tick")
    expected = range(min(ticks), max(ticks) + 1, OCCURRENCES_EVERY) if ticks else range(0)
    begun = [note.at for note in notes if note.mark == "start" and not note.due]
    unhindered = [
        after.acquired - after.started for before, after in pairwise(launches) if before.released < after.started
    ] or [launches[0].acquired - launches[0].started]
    return Figures(
        launches=len(launches),
        coverage=1 - sum(gaps) / whole if whole else 0.0,
        gap=spread(gaps),
        silence=max((after - before for before, after in pairwise(begun)), default=0.0),
        latency=spread([note.latency for note in first if not note.due]),
        due=spread([note.latency for note in first if note.due]),
        occurrences=spread([note.latency for note in notes if note.mark == "tick"]),
        lost=len(set(accepted) - ends) + len(set(expected) - ticks.keys()),
        twice=sum(times > 1 for times in [*starts.values(), *ticks.values()]),
        early=sum(note.latency < 0 for note in notes if note.mark != "end" and note.due),
        overruns=overruns,
        start_up=_mean(unhindered),
        exit=_mean([each.ended - each.released for each in launches]),
    )


def overruns(launches: Sequence[Launch], limits: Mapping[float, float], rule: LauncherRule, handoff: HandOff) -> int:
    """How many launches were there for too long. ``limits``: for each tick, when a launch for it was to be expected,
    or, if it is dropped while one is alive, the last instant at which an end is noticed in time.

    Under ``drop`` the process must have ended by the next tick's limit. Elsewhere handling must have ended: under a
    deadline by the next tick's limit, under a baton, if a successor can wait, by that of the tick after it.
    """
    last = int(rule.handoff(handoff).on_call)
    late = 0
    for launch in launches:
        end = launch.ended if rule is LauncherRule.DROP else launch.worked_until
        ahead = [limit for tick, limit in limits.items() if tick > launch.started + OUR_OWN]
        late += len(ahead) > last and end > ahead[last]
    return late


def dropped(ticks: Sequence[float], processes: Iterable[LaunchedProcess]) -> int:
    """Ticks after which no process was started until the next one. /proc has starts in hundredths of a second: one may
    seem to precede its tick."""
    starts = [each.started + OUR_OWN for each in processes]
    following = [*ticks[1:], float("inf")]
    return sum(not any(tick <= start < until for start in starts) for tick, until in zip(ticks, following, strict=True))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
