"""Reads all metrics from the store: totals of all launches, and the present state. Writes them as text in the format
that Prometheus scrapes (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from pollconsumer.core.errors import CannotCreate, PermissionDenied
from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.text import printable
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_lines
from pollconsumer.interface.cli.types import NAMED_PATH, option
from pollconsumer.interface.named_files import refuse_to_replace, replacement
from pollconsumer.store.reading.batch_reader import STATES
from pollconsumer.store.reading.inspector import Inspector, QueueCounts
from pollconsumer.store.reading.ledger import LAST_BUCKET, Spans, Totals

T = TypeVar("T")
LAUNCHES_READ = 1000
Labels = Mapping[str, str]
BOUNDS = [f"{0.001 * 2**number:g}" for number in range(LAST_BUCKET)]
"""Upper bounds of all buckets except the last, in seconds."""
READABLE = 0o644
"""The mode of the text file. Node exporter, which collects it, runs as another user."""


class Sample(NamedTuple):
    """One value of a metric. ``suffix``: appended to the metric's name in a histogram's samples."""

    labels: Labels
    value: float
    suffix: str = ""


class Metric(NamedTuple):
    """A metric. Its ``name`` lacks the prefix that all metrics have."""

    name: str
    kind: str
    help: str
    samples: list[Sample]


def samples_of(histogram: Spans, labels: Labels) -> Iterator[Sample]:
    below = 0
    for number, bound in enumerate(BOUNDS):
        below += histogram.counts.get(number, 0)
        yield Sample({**labels, "le": bound}, below, "_bucket")
    every = below + histogram.counts.get(LAST_BUCKET, 0)
    yield Sample({**labels, "le": "+Inf"}, every, "_bucket")
    yield Sample(labels, histogram.total, "_sum")
    yield Sample(labels, every, "_count")


def lines_of(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        name = f"pollconsumer_{metric.name}"
        yield f"# HELP {name} {metric.help}"
        yield f"# TYPE {name} {metric.kind}"
        for labels, value, suffix in metric.samples:
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"{name}{suffix}{{{pairs}}} {value:.15g}"


def _escaped(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


OF_QUEUES: dict[str, tuple[str, Callable[[QueueCounts], float]]] = {
    "overdue_messages": ("Scheduled messages whose due time has passed.", lambda each: each.overdue),
    "parked_messages": (
        "Scheduled messages whose handler is paused, or unknown to all launches.",
        lambda each: each.parked,
    ),
    "oldest_ready_seconds": (
        "Time that the oldest ready message has waited, but for those in line for a key; 0 if there is none.",
        lambda each: each.oldest_ready_seconds or 0.0,
    ),
    "queue_paused": ("1 while the queue is paused, else 0.", lambda each: each.paused),
    "scale_out": (
        "Ready and overdue messages, plus the seconds that the oldest ready one has waited.",
        lambda each: each.ready + each.overdue + (each.oldest_ready_seconds or 0.0),
    ),
}
OF_LAUNCHES: dict[str, tuple[str, Callable[[Mapping[str, Any]], float | None]]] = {
    "last_launch_timestamp_seconds": (
        "Unix time at which the last launch started.",
        lambda each: each["started_ms"] / 1000,
    ),
    "launch_gap_seconds": ("Time without a launch before the last launch.", lambda each: each["gap_seconds"]),
    "launch_margin_seconds": (
        "How long before the end of its window the last launch stopped taking messages.",
        lambda each: each["margin_seconds"],
    ),
}
"""Gauge → its help, and its value for a queue, or for the last launch of a role and queue (None: no sample)."""


def metrics_of(inspector: Inspector) -> list[Metric]:
    """All metrics of a store. Raises the errors of all reads."""
    overview, totals = inspector.overview(), inspector.totals()
    latest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for launch in inspector.launches(LAUNCHES_READ, of_each=2):
        for queue in launch["queues"] or [""]:
            if "started_ms" in launch:
                latest.setdefault((launch["role"], queue), launch)
    launched, role_and_queue = dict(sorted(latest.items())), ("role", "queue")
    queues = {(each.name,): each for each in overview.queues}
    by_state = {(*name, state.value): getattr(each, state) for name, each in queues.items() for state in State}
    batches = {
        (name, state): each.get(state, 0) for name, each in sorted(inspector.batches().items()) for state in STATES
    }
    lost = dict.fromkeys(queues, 0) | {(name,): 1 for name in overview.unreachable}
    roles = {(role,): 0 for role, _ in (*launched, *totals.launches)}
    held = roles | {(each["role"],): 1 for each in overview.leases}
    return [
        *_totals_metrics(totals),
        _metric("messages", "Messages that the store has now, by state.", ("queue", "state"), by_state),
        *(_metric(name, text, ("queue",), _values(value, queues)) for name, (text, value) in OF_QUEUES.items()),
        _metric("batches", "Batches that the store has now, by state.", ("queue", "state"), batches),
        _metric("queue_unreachable", "1 while the cluster node of this queue is lost, else 0.", ("queue",), lost),
        _metric("lease_held", "1 while a launch of this role holds a lease, else 0.", ("role",), held),
        *(_metric(name, text, role_and_queue, _values(value, launched)) for name, (text, value) in OF_LAUNCHES.items()),
    ]


def _values(value: Callable[[T], float | None], known: Mapping[Any, T]) -> dict[Any, float]:
    return {labels: found for labels, each in known.items() if (found := value(each)) is not None}


def _metric(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float], kind: str = "gauge") -> Metric:
    """A metric. ``labels``: names of labels. ``values``: their values → the sample's value."""
    return Metric(name, kind, text, [Sample(dict(zip(labels, of, strict=True)), each) for of, each in values.items()])


def _totals_metrics(totals: Totals) -> list[Metric]:
    settled, launches = dict(sorted(totals.settled.items())), dict(sorted(totals.launches.items()))
    skipped = {(queue,): count for queue, count in sorted(totals.skipped.items())}
    return [
        _metric(
            "messages_settled_total",
            "Attempts that have ended, by outcome.",
            ("queue", "handler", "outcome"),
            settled,
            "counter",
        ),
        _metric(
            "occurrences_skipped_total", "Occurrences of recurrences that were skipped.", ("queue",), skipped, "counter"
        ),
        _metric(
            "launches_total", "Launches that have ended, by stop reason.", ("role", "stop_reason"), launches, "counter"
        ),
        _histogram("handling_duration_seconds", "Time that handlers took for a message.", "handler", totals.durations),
        _histogram(
            "waiting_seconds", "Time that messages were ready before a launch took them.", "queue", totals.waits
        ),
        _histogram(
            "lateness_seconds", "Time from when a message was due until it was ready.", "queue", totals.lateness
        ),
    ]


def _histogram(name: str, text: str, label: str, histograms: Mapping[str, Spans]) -> Metric:
    samples = [each for subject in sorted(histograms) for each in samples_of(histograms[subject], {label: subject})]
    return Metric(name, "histogram", text, samples)


@click.command(epilog="pollconsumer metrics\npollconsumer metrics --textfile /var/lib/node_exporter/pollconsumer.prom")
@option("--textfile", "Write the metrics to this file, atomically.", NAMED_PATH)
def metrics(textfile: Path | None) -> None:
    """Print metrics as Prometheus text: totals of all launches, and the state of queues and launches."""
    lines = lines_of(metrics_of(opened().inspector))
    if textfile is None:
        print_lines(lines)
    else:
        try:
            refuse_to_replace(textfile)
            with replacement(textfile, READABLE) as written:  # a collector reads either the old file or the new one
                written.write("".join(f"{line}\n" for line in lines).encode())
        except PermissionError:
            fix = "permission denied: let this user write its directory"
            raise PermissionDenied("text file", textfile, fix) from None
        except OSError as error:
            fix = f"{error.strerror}: name a file in a directory that exists"
            raise CannotCreate("text file", textfile, fix) from None
