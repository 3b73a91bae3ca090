"""``python -m benchmarks.one MEASURE`` prints its figures as JSON, measured in this process and its children."""

from __future__ import annotations

import importlib
import json
import sys

print(json.dumps(importlib.import_module(f"benchmarks.{sys.argv[1]}").measure()))
