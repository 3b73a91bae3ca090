"""Directs the log of a launch, and of the processes of its isolated handlers, as the settings say."""

from __future__ import annotations

import os

from pollconsumer.interface.settings.model import LogsSettings, Settings


def direct_log(settings: Settings) -> None:
    """Have the log go where the settings say. Its default needs no import."""
    if settings.logs != LogsSettings() or "JOURNAL_STREAM" in os.environ:
        from pollconsumer.interface.assembly.log_outputs import apply

        apply(settings.logs, settings.directory)
