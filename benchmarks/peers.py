"""The same measures beside peers, by a harness that runs them on one server in turn.

The harness is a directory with ``setup.sh PEER``, which installs a peer, or this checkout where POLLCONSUMER names it,
and ``run.py MEASURE --repeat N --out FILE``, whose file has ``measures.MEASURE.peers``: for ``PEER`` or ``PEER
PROFILE`` the median of each figure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import drawing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OURS = "pollconsumer"
REFERENCES = {"bullmq", "naive", "seemann"}
"""No Python queue: never the best peer."""
MEASURES: dict[str, tuple[list[str], dict[str, bool]]] = {
    "drain": (["drain", "--profiles", "tuned"], {"jobs_per_s": True}),
    "slots": (["drain-io"], {"share_of_ideal": True, "worker_cpu_per_1k": False}),
    "enqueue": (["enqueue"], {"single_per_s": True, "bulk_per_s": True}),
    "wake": (["idle-latency"], {"p50": False, "p99": False}),
    "startup": (["cold-start"], {"ms": False}),
    "lateness": (["due-lateness"], {"p50": False, "p99": False}),
}
"""The harness's command, and its figures: whether more is better."""
LABELS = {
    "jobs_per_s": "messages a second",
    "share_of_ideal": "share of what the slots allow",
    "worker_cpu_per_1k": "processor time a message, ms",
    "single_per_s": "one by one, messages a second",
    "bulk_per_s": "in bulk, messages a second",
    "p50": "median, ms",
    "p99": "99th percentile, ms",
    "ms": "ms",
}


def compare(directory: Path, measures: Sequence[str], repeat: int) -> Iterator[list[str]]:
    """A table, and a drawing of each figure, for each measure."""
    checkout = str(Path(__file__).parents[1])
    subprocess.run(["./setup.sh", OURS], cwd=directory, env=os.environ | {"POLLCONSUMER": checkout}, check=True)
    with tempfile.TemporaryDirectory(prefix="pc-peers-") as temporary:
        out = Path(temporary) / "results.json"
        for measure in measures:
            if measure in MEASURES:
                (command, *options), figures = MEASURES[measure]
                flags = [*options, "--repeat", str(repeat), "--out", str(out)]
                subprocess.run([sys.executable, "run.py", command, *flags], cwd=directory, check=True)
                yield _lines(measure, json.loads(out.read_text())["measures"][command]["peers"], figures)


def _lines(measure: str, peers: dict[str, dict[str, Any]], figures: dict[str, bool]) -> list[str]:
    lines = [f"| {measure}, beside peers | ours | best peer | ratio | reference |", "|-|-|-|-|-|"]
    drawings = list[str]()
    for figure, more_is_better in figures.items():
        found = {name.split()[0]: peer[figure]["median"] for name, peer in peers.items() if peer.get(figure)}
        others = {name: found[name] for name in found.keys() - REFERENCES - {OURS}}
        best = (max if more_is_better else min)(others, key=others.__getitem__)
        naive = f"{drawing.number(found['naive'])} naive" if "naive" in found else "–"
        ours, theirs = found[OURS], others[best]
        shown = f"{drawing.number(ours)} | {drawing.number(theirs)} {best} | {drawing.number(ours / theirs)} | {naive}"
        lines.append(f"| {LABELS[figure]} | {shown} |")
        drawings += ["", *drawing.bars(f"{measure}: {LABELS[figure]}", found, more_is_better=more_is_better)]
    return lines + drawings
