"""What came of a trial: from what its producers and handlers recorded, and how its store ended."""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.store.keyspace import Keys
from tests.faults import store_view
from tests.faults.about_launches import (
    exit_codes_are_those_of_the_contract,
    fences_rise,
    no_process_stays,
    nothing_is_printed_but_warnings,
)
from tests.faults.history import History
from tests.faults.installation import NAMESPACE
from tests.trials import recording
from tests.trials.recording import read_accepted, read_executed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

    from pollconsumer.store.client.wire import Wire
    from tests.trials.place import Place
    from tests.trials.recording import Accepted, Executed

AROUND = 2.0
"""Seconds before a failover in which a change may have been unreplicated, and after it in which another launch takes a
lease that lapsed."""
INVARIANTS = (
    exit_codes_are_those_of_the_contract, fences_rise, no_process_stays, nothing_is_printed_but_warnings
)  # fmt: skip


class Span(NamedTuple):
    """A failover: epoch seconds. ``cut``: the place that was cut off with the old primary, until ``healed``, and
    ``promoted`` when another was one; ``told``: its producer has said since that the store went back."""

    since: float
    until: float
    cut: int | None = None
    promoted: float = 0.0
    healed: float = 0.0
    told: bool = False
    kind: str = ""


class Report(NamedTuple):
    """``pauses``: by failover, seconds, of acknowledgements and of handlers' starts. ``twice_elsewhere``: not around a
    failover. ``cut_off``: what was done by places that were cut off, after the promotion."""

    failovers: Counter[str]
    acknowledged: int
    in_doubt: int
    lost: list[str]
    twice: int
    twice_elsewhere: list[str]
    enqueueing_paused: list[float]
    handling_paused: list[float]
    codes: Counter[str]
    lines: Counter[str]
    cut_off: str
    violations: list[str]


def report(places: Sequence[Place], wire: Wire, spans: Sequence[Span]) -> Report:
    acknowledged, calls = read_accepted(places), read_executed(places)
    again = {*recording.twice(calls)}
    first = {call.message: call.at for call in reversed(calls) if call.message in again}
    around = {name for name in again if any(is_around(span, first[name]) for span in spans)}
    commands = [command.ran() for place in places for command in place.commands]
    history = History(
        commands=[ran for ran in commands if "run" in ran.arguments],
        leases=store_view.leases(wire, NAMESPACE),
        strays=[f"{pid}: {' '.join(words)}" for place in places for pid, words in place.processes()],
    )
    lost = recording.lost(acknowledged, calls)
    return Report(
        failovers=Counter(span.kind for span in spans),
        acknowledged=len(acknowledged),
        in_doubt=sum(each.doubts > 0 for each in acknowledged),
        lost=[each.message for each in lost],
        twice=len(again),
        twice_elsewhere=sorted(again - around),
        enqueueing_paused=list(pauses(spans, acknowledged, of_each_place=True)),
        handling_paused=list(pauses(spans, calls, of_each_place=False)),
        codes=Counter(f"{'run' if 'run' in ran.arguments else 'producer'} {ran.code}" for ran in commands),
        lines=Counter(_anonymous(line) for ran in commands for line in ran.errors.splitlines()),
        cut_off=_while_cut_off(spans, acknowledged, calls) if any(span.cut is not None for span in spans) else "",
        violations=[
            *(line for invariant in INVARIANTS for line in invariant(history)),
            *fences_of_two(calls),
            *stale_kept(_kept(wire, again), calls, {lease.fence for lease in history.leases}),
            *untold(spans, lost),
        ],
    )


def pauses(
    spans: Sequence[Span], instants: Sequence[Accepted] | Sequence[Executed], *, of_each_place: bool
) -> Iterator[float]:
    """The longest around each failover, in seconds, where it was not cut off. ``instants`` are in their order."""
    by_place: dict[int, list[float]] = {}
    for each in instants:
        by_place.setdefault(each.place, []).append(each.at)
    for span in spans:
        near = [
            at[max(0, bisect_left(at, span.since) - 1) : bisect_right(at, span.until) + 1]
            for place, at in by_place.items()
            if place != span.cut
        ]
        groups = near if of_each_place else [sorted(chain.from_iterable(near))]
        gaps = [pair for group in groups for pair in pairwise(group)]
        yield max((b - a for a, b in gaps if b >= span.since and a <= span.until), default=0.0)


def _while_cut_off(spans: Sequence[Span], acknowledged: Sequence[Accepted], calls: Sequence[Executed]) -> str:
    within = [
        sum(each.place == span.cut and span.promoted <= each.at <= span.healed for each in some for span in spans)
        for some in (acknowledged, calls)
    ]
    told = sum(span.told for span in spans)
    return f"{within[0]} acknowledged and {within[1]} handled there after the promotion; told that it went back: {told}"


def fences_of_two(calls: Sequence[Executed]) -> Iterator[str]:
    launches: dict[int, set[str]] = {}
    for call in calls:
        launches.setdefault(call.fence, set()).add(call.launch)
    for fence, of_fence in launches.items():
        if len(of_fence) > 1:
            yield f"fence {fence} was used by {len(of_fence)} launches"


def stale_kept(kept: Mapping[str, int], calls: Sequence[Executed], granted: Set[int]) -> Iterator[str]:
    """Completions under a fence below one that the store granted to another launch which began the same message.
    ``kept``: the fence of each completion that the store has."""
    highest: dict[str, int] = {}
    for call in calls:
        if call.fence in granted:
            highest[call.message] = max(call.fence, highest.get(call.message, 0))
    for message, fence in kept.items():
        if fence < highest.get(message, 0):
            yield f"the completion of {message} under fence {fence} was kept, after one under {highest[message]}"


def untold(spans: Sequence[Span], lost: Sequence[Accepted]) -> Iterator[str]:
    for span in spans:
        own = [each for each in lost if each.place == span.cut and span.since <= each.at <= span.until]
        if own and not span.told:
            yield f"{len(own)} messages were lost by a producer that was cut off and was not told, as {own[0].message}"


def _kept(wire: Wire, messages: Iterable[str]) -> dict[str, int]:
    """The results of those that the store remembers: the fences under which they were completed."""
    key, kept = Keys(NAMESPACE).queue("default", "results"), dict[str, int]()
    for message in messages:
        if result := wire.command("HGET", key, message):
            kept[message] = int(result.partition(b"\n")[0])
    return kept


def is_around(span: Span, at: float) -> bool:
    """Whether a call that began ``at`` this instant may be repeated because of the failover. Shortly after it, another
    launch takes a lease that lapsed meanwhile, and what its holder has begun since."""
    return span.since - AROUND <= at <= span.until + AROUND


def _anonymous(line: str) -> str:
    """Without what differs from time to time, so that lines can be counted."""
    return re.sub(r"\d+", "N", re.sub(r"(m\d+-\d+)(, m\d+-\d+)*( and \d+ more)?", "IDS", line))


def shown(found: Report) -> Iterator[str]:
    yield f"failovers: {dict(found.failovers)}"
    yield (
        f"{found.acknowledged} acknowledged ({found.in_doubt} after a call in doubt), {len(found.lost)} lost, "
        f"{found.twice} handled twice, {len(found.twice_elsewhere)} of them not around a failover"
    )
    for what, pauses in (("enqueueing", found.enqueueing_paused), ("handling", found.handling_paused)):
        if pauses:
            yield f"{what} paused: p50 {statistics.median(pauses):.2f} s, max {max(pauses):.2f} s"
    if found.cut_off:
        yield f"places that were cut off: {found.cut_off}"
    yield f"exit codes: {dict(sorted(found.codes.items()))}"
    for line, count in found.lines.most_common():
        yield f"{count} x {line}"
    for line in found.violations:
        yield f"VIOLATION: {line}"
