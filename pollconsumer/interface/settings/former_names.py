"""Warns of settings, variables and flags by names that they had before. They are accepted for a while."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pollconsumer.interface.command_line import values_of
from pollconsumer.interface.logs.logs import STANDING, about, log
from pollconsumer.interface.settings.fields import declared_fields
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.names import variable


def warn_of_former_names(settings: Settings) -> None:
    """Warn of each former name that this command was given; damped across launches, as any warning that repeats."""
    for former, name in former_names(settings.config, os.environ, sys.argv[1:]):
        text = "%s is a former name, and goes with a later version: use %s"
        log.warning(text, former, name, extra=about("former name", former, kind=STANDING))


def former_names(
    config: Path | None, variables: Mapping[str, str], arguments: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the former names that a file, variables and a command line have, each with its present one."""
    for section, keys in declared_fields().sections.items():
        for setting in keys.values():
            if not setting.former:
                continue
            former = f"{section}.{setting.former}".lstrip(".")
            present = f"{section}.{setting.key}".lstrip(".")
            if _is_in(config, section, setting.former):
                yield former, present
            if variables.get(variable(former)):
                yield variable(former), variable(present)
            flag = f"--{setting.former.replace('_', '-')}"
            if setting.flag is not None and any(True for _ in values_of(flag, arguments)):
                yield flag, setting.flag


def _is_in(config: Path | None, section: str, key: str) -> bool:
    """Whether the file has the key; False for one that is gone meanwhile."""
    try:
        content = b"" if config is None else config.read_bytes()
        if key.encode() not in content:
            return False
        import tomllib  # few files have a former name

        found: Any = tomllib.loads(content.decode())
    except (OSError, ValueError):
        return False
    return key in (found.get(section, {}) if section else found)
