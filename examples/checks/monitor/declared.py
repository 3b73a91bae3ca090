"""The settings in monitor.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Declared:
    """``smtp`` is host:port; ``log`` is relative to the directory of the file."""

    log: Path
    smtp: str
    sender: str
    keep_days: int = 90


def read(path: Path) -> Declared:
    """ValueError names the key: `pollconsumer check` prints it on one line."""
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        return Declared(**given | {"log": path.parent / given["log"]})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path.name}: {error}") from None
