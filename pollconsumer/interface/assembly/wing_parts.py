"""Functions of wings that launches and commands call. They are found by the names of their modules, since the house
imports no wing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

PARTS = {
    "closing_connections": "pollconsumer.django.connections",
    "import_site": "pollconsumer.django.site",
    "installed_queues": "pollconsumer.platform_files.crontabs",
    "installed_schedule": "pollconsumer.platform_files.crontabs",
    "telling_outcome": "pollconsumer.web.launch_outcome",
    "write_at_end": "pollconsumer.dashboard.at_end",
}
"""Function → its module."""


def wing_part(name: str) -> Any:
    """The function ``name`` of `PARTS`."""
    return getattr(import_module(PARTS[name]), name)
