"""Histograms of durations as stored text, ``0.75 12:3 40:1``: the sum in seconds; number and count of each bucket."""

from __future__ import annotations

import re
from math import inf

from pollconsumer.core.durations import LAST, Histogram

_TEXT = rb"(\d+(?:\.\d+)?(?:e[+-]\d+)?)((?: \d{1,3}:\d{1,15})+)"


def write_histogram(histogram: Histogram) -> str:
    return f"{histogram.total:.9g}" + "".join(f" {bucket}:{count}" for bucket, count in histogram.counts.items())


def read_histogram(text: bytes | None) -> Histogram | None:
    """The histogram in stored text; None if there is none, or if it is corrupt."""
    read = re.fullmatch(_TEXT, text or b"")
    if read is None or (total := float(read[1])) == inf:
        return None
    pairs = (each.split(b":") for each in read[2].split())
    counts = {int(bucket): int(count) for bucket, count in pairs}
    return Histogram(total, counts) if max(counts) <= LAST else None
