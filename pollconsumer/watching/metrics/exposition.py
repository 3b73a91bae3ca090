"""Metrics as text, in the format that Prometheus scrapes (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pollconsumer.core.notation.text import printable
from pollconsumer.store.reading.totals import LAST_BUCKET, Spans

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
BOUNDS = [f"{0.001 * 2**number:g}" for number in range(LAST_BUCKET)]
"""Upper bounds of the buckets but the last, in seconds."""


class Sample(NamedTuple):
    """A sample of a metric. ``suffix`` of the metric's name, for samples of a histogram."""

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
