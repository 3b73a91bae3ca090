"""What a scenario found: figures for people, and the invariants that failed."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.launcher import LAUNCHES
from pollconsumer.core.window import OUR_OWN
from tests.cron.place import show
from tests.cron.watch import ROLES
from tests.forecast.figures import quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.cron.daemon import CronPlace
    from tests.cron.place import Place
    from tests.cron.watch import Watch

MOST_LAUNCHES = 200
MATCHES_WITHIN = 2.0
"""Seconds by which the ledger's start of a launch may differ from the kernel's, to be the same launch's."""
WINDOW, GRACE = 60.0, 10.0


class Note(NamedTuple):
    """One line that the handler wrote; times in seconds since the epoch, ``due`` 0 for a message not scheduled."""

    mark: str
    sequence: int
    at: float
    pid: int
    enqueued: float
    due: float

    @property
    def latency(self) -> float:
        return self.at - (self.due or self.enqueued)


class Report:
    """Prints as it goes; ``failures`` are the invariants that did not hold."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def say(self, what: str, value: object) -> None:
        show(f"{what + ':':<46} {value}")

    def check(self, what: str, value: object, *, holds: bool) -> None:
        """Say it, and count it as a failure where it does not hold."""
        self.say(what, value if holds else f"{value}   FAILED")
        if not holds:
            self.failures.append(f"{what}: {value}")


def read_notes(path: Path) -> list[Note]:
    """What the handler wrote, in order of time."""
    notes = []
    for line in path.read_text().splitlines() if path.exists() else ():
        mark, sequence, at, pid, enqueued, due = line.split()
        notes.append(Note(mark, int(sequence), float(at), int(pid), float(enqueued), float(due)))
    return sorted(notes, key=lambda note: note.at)


def check_messages(report: Report, place: Place, interrupted: set[int]) -> None:
    """Every accepted message was handled once; only those in ``interrupted`` may have been started again."""
    accepted = [line.split() for line in (place.directory / "accepted").read_text().splitlines()]
    sequences = {int(words[0]) for words in accepted}
    notes = read_notes(place.directory / "handled")
    starts = Counter(note.sequence for note in notes if note.mark == "start")
    ends = Counter(note.sequence for note in notes if note.mark == "end")
    lost = sorted(sequences - ends.keys())
    twice = sorted(sequence for sequence, times in ends.items() if times > 1)
    again = sorted(sequence for sequence, times in starts.items() if times > 1)
    took = [float(words[2]) for words in accepted]
    report.say("accepted", f"{len(sequences)}, enqueue {spread(took)}, {sum(w[3] != '1' for w in accepted)} repeated")
    report.check("lost", lost or 0, holds=not lost)
    report.check("handled twice", twice or 0, holds=not twice)
    report.check("started twice", again or 0, holds=set(again) <= interrupted)
    report.check("handled, never accepted", len(ends.keys() - sequences), holds=ends.keys() <= sequences)


def check_latency(report: Report, place: Place) -> None:
    """Seconds from enqueue to the handler's first start, by where in the life of a launch a message was enqueued.

    A launch's span is from the first handler that it started to the last; what was enqueued outside every span waited
    in the gap, the launch's start-up included.
    """
    firsts: dict[int, Note] = {}
    spans: dict[int, tuple[float, float]] = {}
    for note in read_notes(place.directory / "handled"):
        if note.mark == "start":
            firsts.setdefault(note.sequence, note)
            spans[note.pid] = (spans.get(note.pid, (note.at, 0.0))[0], note.at)
    inside, gap, scheduled = [], [], []
    for note in firsts.values():
        if note.due:
            scheduled.append(note)
        elif any(first <= note.enqueued <= last for first, last in spans.values()):
            inside.append(note.latency)
        else:
            gap.append(note.latency)
    report.say("latency inside launches", spread(inside))
    report.say("latency of what was enqueued in a gap", spread(gap))
    pauses = [later[0] - earlier[1] for earlier, later in pairwise(sorted(spans.values()))]
    report.say("latency of all, due ones included", spread(note.latency for note in firsts.values()))
    report.say("from a launch's last start to the next's first", spread(pauses))
    if scheduled:
        early = [note.sequence for note in scheduled if note.latency < 0]
        served = [n.latency for n in scheduled if any(first <= n.due <= last for first, last in spans.values())]
        report.check("scheduled messages early", early or 0, holds=not early)
        report.say("late, of those due inside launches", spread(served))
        report.say("late, of all due ones", spread(note.latency for note in scheduled))


def check_launches(
    report: Report,
    place: CronPlace,
    watch: Watch,
    *,
    least: int,
    killed: Iterable[int] = (),
    may_overrun: bool = False,
) -> None:
    """Launches had ended when the next one was to be expected, within their window, and are in the ledger.

    Under the baton they overlap: the next one waits for the lease. So it does where messages last so long that launches
    ``may_overrun``, by less than their grace.
    """
    killed = set(killed)
    batons = [name for name in place.variables if name.endswith("__HANDOFF") and place.variables[name] == "baton"]
    ledger = sorted(place.ask("launches", "--limit", str(MOST_LAUNCHES)), key=lambda entry: str(entry["started_at"]))
    for role in ROLES.values():
        processes = watch.of_role(role)
        entries = [entry for entry in ledger if entry["role"] == role]
        report.check(f"{role}: launches", len(processes), holds=len(processes) >= least)
        offsets = [process.started % WINDOW for process in processes]
        report.say(f"{role}: started after the minute", spread(offsets))
        overlap = f"POLLCONSUMER_{role.upper()}__HANDOFF" in batons
        longest = max((process.running_seconds for process in processes), default=0.0)
        most = WINDOW + GRACE if may_overrun else WINDOW
        report.check(f"{role}: longest running time", f"{longest:.2f} s", holds=overlap or longest <= most)
        starts = [process.started for process in processes]
        spare = [_next_start(process.started, starts) - (process.ended or inf) for process in processes[:-1]]
        holds = overlap or may_overrun or all(gap > 0 for gap in spare)
        report.check(f"{role}: from end to when the next was expected", spread(spare), holds=holds)
        tails = []
        for process in processes:
            near = [e for e in entries if abs(epoch(e["started_at"]) - process.started) < MATCHES_WITHIN]
            if len(near) != 1:
                report.check(f"{role}: entries of process {process.pid} in the ledger", len(near), holds=False)
            elif process.ended is not None:
                tails.append(process.ended - epoch(near[0]["started_at"]) - near[0]["running_seconds"])
            if near and process.pid not in killed:
                code = near[0]["exit_code"]
                report.check(f"{role}: exit code of {process.pid}", code, holds=code == 0) if code != 0 else None
        report.say(f"{role}: from the ledger's end to the process's", spread(tails))


def _next_start(started: float, starts: Sequence[float]) -> float:
    return expected_start(((started + OUR_OWN) // WINDOW + 1) * WINDOW, starts)


def expected_start(tick: float, starts: Sequence[float]) -> float:
    """When the launch of a tick started; or, if that was sooner after the tick than any of those before, when the
    launch before it could expect it: as long after the tick as the promptest of the last ten, itself one of them."""
    following = min((start for start in starts if start + OUR_OWN > tick), default=inf)
    before = sorted(start for start in starts if start + OUR_OWN <= tick)[-LAUNCHES:]
    offsets = [(start + OUR_OWN) % WINDOW - OUR_OWN for start in before]
    return max(following, tick + min(offsets)) if len(offsets) > 1 else following


def say_coverage(report: Report, place: Place) -> None:
    """The share of time in which a consumer held the lease, and the gaps between them, by the ledger."""
    entries = [entry for entry in place.ask("launches", "--limit", str(MOST_LAUNCHES)) if entry["role"] == "consumer"]
    held = sorted(entries, key=lambda entry: str(entry["started_at"]))
    gaps = [entry["gap_seconds"] for entry in held if entry["gap_seconds"] is not None]
    ends = [epoch(entry["started_at"]) + entry["running_seconds"] for entry in held]
    report.say("gap between consumers' leases", spread(gaps))
    acquired = [end + gap for end, gap in zip(ends, gaps, strict=False)]
    if len(acquired) > 1:
        covered = 1 - sum(gaps[1:]) / (acquired[-1] - acquired[0])
        report.say("coverage from the second lease to the last", f"{covered:.2%}")


def check_mail(report: Report, place: CronPlace, *, expected: bool = False) -> None:
    """Launches printed nothing, so that cron had nothing to mail; ``expected`` where something was made to go wrong."""
    mails = place.cron.mailed()
    report.check("mails", mails.count("\nSubject: ") + mails.startswith("Subject: "), holds=expected or not mails)
    if mails:
        show(mails)
    if place.cron.printed():
        report.say("cron printed", place.cron.printed())


def print_launches(place: Place) -> None:
    """The ledger as a person sees it."""
    show(f"\n{place.call('launches', '--limit', str(MOST_LAUNCHES)).stdout}")


def epoch(time: Any) -> float:
    """Seconds since the epoch of a time as ``--json`` prints it."""
    return datetime.fromisoformat(str(time)).timestamp()


def spread(seconds: Iterable[float]) -> str:
    """Least, median, 90th and 99th percentile and largest, as text."""
    ordered = sorted(seconds)
    if not ordered:
        return "none"
    shares = (("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    values = [(name, quantile(ordered, share)) for name, share in shares]
    return " ".join(f"{name} {text(value)}" for name, value in values) + f" (n={len(ordered)})"


def text(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    return f"{seconds * 1000:.1f} ms" if abs(seconds) < 1 else f"{seconds:.2f} s"
