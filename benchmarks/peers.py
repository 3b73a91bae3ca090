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

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def compare(directory: Path, measures: Sequence[str], repeat: int) -> None:
    checkout = str(Path(__file__).parents[1])
    subprocess.run(["./setup.sh", OURS], cwd=directory, env=os.environ | {"POLLCONSUMER": checkout}, check=True)
    with tempfile.TemporaryDirectory(prefix="pc-peers-") as temporary:
        out = Path(temporary) / "results.json"
        for measure in measures:
            if measure in MEASURES:
                (command, *options), figures = MEASURES[measure]
                flags = [*options, "--repeat", str(repeat), "--out", str(out)]
                subprocess.run([sys.executable, "run.py", command, *flags], cwd=directory, check=True)
                _print(measure, json.loads(out.read_text())["measures"][command]["peers"], figures)


def _print(measure: str, peers: dict[str, dict[str, Any]], figures: dict[str, bool]) -> None:
    print(f"\n| {measure}, beside peers | ours | best peer | ratio | reference |\n|-|-|-|-|-|")
    for figure, more_is_better in figures.items():
        found = {name.split()[0]: peer[figure]["median"] for name, peer in peers.items() if peer.get(figure)}
        ours, others = found.pop(OURS), {name: found[name] for name in found.keys() - REFERENCES}
        best = (max if more_is_better else min)(others, key=others.__getitem__)
        naive = f"{found['naive']:,.4g} naive" if "naive" in found else "–"
        print(
            f"| {figure} | {ours:,.4g} | {others[best]:,.4g} {best} | {ours / others[best]:.3g} | {naive} |", flush=True
        )
