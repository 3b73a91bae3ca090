"""``python -m benchmarks.one MEASURE`` prints its figures as JSON, measured in this process and its children."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import benchmarks
import pollconsumer

# An earlier version's floor is beside its package: it speaks the language of that version's scripts.
benchmarks.__path__.insert(0, str(Path(pollconsumer.__file__).parents[1] / "benchmarks"))
print(json.dumps(importlib.import_module(f"benchmarks.{sys.argv[1]}").measure()))
