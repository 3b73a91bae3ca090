"""All metrics, read from the store: totals of all launches, and the present state. And their text, in the format that
Prometheus scrapes (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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

LAUNCHES_READ = 1000
Labels = Mapping[str, str]
BOUNDS = [f"{0.001 * 2**number:g}" for number in range(LAST_BUCKET)]
"""Upper bounds of all buckets except the last, in seconds."""
READABLE = 0o644
"""The text file's mode, since its collector is another user."""


class Sample(NamedTuple):
    """A sample of a metric. ``suffix``: appended to the metric's name, for samples of a histogram."""

    labels: Labels
    value: float
    suffix: str = ""


class Metric(NamedTuple):
    """A metric, by its ``name`` without the prefix."""

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


def metrics_of(inspector: Inspector) -> list[Metric]:
    """All metrics of a store. Raises the errors of every read."""
    overview, totals = inspector.overview(), inspector.totals()
    launches = inspector.launches(LAUNCHES_READ)
    held = [Sample({"role": each["role"]}, 1) for each in {each["role"]: each for each in overview.leases}.values()]
    lost = [Sample({"queue": each.name}, 0) for each in overview.queues]
    lost += [Sample({"queue": name}, 1) for name in overview.unreachable]
    batches = [
        Sample({"queue": batch_queue, "state": state}, states.get(state, 0))
        for batch_queue, states in sorted(inspector.batches().items())
        for state in STATES
    ]
    return [
        *_totals_metrics(totals),
        *_queue_metrics(overview.queues),
        Metric("batches", "gauge", "Batches that the store has now, by state.", batches),
        Metric("queue_unreachable", "gauge", "1 while the cluster node of this queue is lost, else 0.", lost),
        Metric("lease_held", "gauge", "1 while a launch of this role holds a lease, else 0.", held),
        *_launch_metrics(launches),
    ]


def _totals_metrics(totals: Totals) -> list[Metric]:
    settled = [
        Sample({"queue": queue, "handler": handler, "outcome": outcome}, count)
        for (queue, handler, outcome), count in sorted(totals.settled.items())
    ]
    launches = [
        Sample({"role": role, "stop_reason": reason}, count)
        for (role, reason), count in sorted(totals.launches.items())
    ]
    skipped = [Sample({"queue": queue}, count) for queue, count in sorted(totals.skipped.items())]
    return [
        Metric("messages_settled_total", "counter", "Attempts that have ended, by outcome.", settled),
        Metric("occurrences_skipped_total", "counter", "Occurrences of recurrences that were skipped.", skipped),
        Metric("launches_total", "counter", "Launches that have ended, by stop reason.", launches),
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


def _queue_metrics(queues: Sequence[QueueCounts]) -> list[Metric]:
    by_state = [
        Sample({"queue": each.name, "state": state.value}, getattr(each, state)) for each in queues for state in State
    ]

    def queue_metric(name: str, text: str, values: list[float]) -> Metric:
        samples = [Sample({"queue": each.name}, value) for each, value in zip(queues, values, strict=True)]
        return Metric(name, "gauge", text, samples)

    oldest = [each.oldest_ready_seconds or 0.0 for each in queues]
    wanted = [each.ready + each.overdue + age for each, age in zip(queues, oldest, strict=True)]
    return [
        Metric("messages", "gauge", "Messages that the store has now, by state.", by_state),
        queue_metric(
            "overdue_messages", "Scheduled messages whose due time has passed.", [each.overdue for each in queues]
        ),
        queue_metric(
            "parked_messages",
            "Scheduled messages whose handler is paused, or unknown to all launches.",
            [each.parked for each in queues],
        ),
        queue_metric(
            "oldest_ready_seconds", "Time that the oldest ready message has waited; 0 if none is ready.", oldest
        ),
        queue_metric("queue_paused", "1 while the queue is paused, else 0.", [float(each.paused) for each in queues]),
        queue_metric(
            "scale_out", "Ready and overdue messages, plus the seconds that the oldest ready one has waited.", wanted
        ),
    ]


def _launch_metrics(launches: Sequence[Mapping[str, Any]]) -> list[Metric]:
    """Metrics of the last launch, for each role and queue."""
    latest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for launch in launches:
        for queue in launch["queues"] or [""]:
            if "started_ms" in launch:
                latest.setdefault((launch["role"], queue), launch)
    by_group = [({"role": role, "queue": queue}, launch) for (role, queue), launch in sorted(latest.items())]
    gaps = [Sample(labels, each["gap_seconds"]) for labels, each in by_group if each["gap_seconds"] is not None]
    return [
        Metric(
            "last_launch_timestamp_seconds",
            "gauge",
            "Unix time at which the last launch started.",
            [Sample(labels, each["started_ms"] / 1000) for labels, each in by_group],
        ),
        Metric("launch_gap_seconds", "gauge", "Time without a launch before the last launch.", gaps),
        Metric(
            "launch_margin_seconds",
            "gauge",
            "How long before the end of its window the last launch stopped taking messages.",
            [Sample(labels, each["margin_seconds"]) for labels, each in by_group],
        ),
    ]


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
