"""Settings of a launch that the command line starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pollconsumer.interface.cli import current_settings
from pollconsumer.interface.settings.load import with_flags
from pollconsumer.interface.settings.model import Settings


def settings_of_launch(section: Literal["consumer", "mover"], flags: Mapping[str, object]) -> Settings:
    """Settings with the flags of ``run`` or ``move``. The configured schedule is the platform's: it does not bound a
    person at a terminal, unless the flag gives it."""
    settings = with_flags(current_settings(), section, flags)
    if flags["schedule"] is None and _at_terminal():
        role = getattr(settings, section)
        settings = replace(settings, **{section: replace(role, schedule=None)})
    return settings


def _at_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
