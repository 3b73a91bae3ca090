"""Names of Python's modules that a user's files have, too."""

from __future__ import annotations

from pollconsumer.interface.settings.model import Settings

NEEDED_LATER = ("queue", "ssl")
"""What we and asyncio import after the user's modules, and a user's file may be called."""


def shadowed(settings: Settings) -> list[str]:
    """Python's modules to import before the configuration's directory is on sys.path."""
    names = (name for name in NEEDED_LATER if name not in settings.handlers)
    return [name for name in names if (settings.directory / f"{name}.py").exists()]
