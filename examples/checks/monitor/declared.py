"""The declarations of checks.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("url", "sqlite", "postgresql")


@dataclass(frozen=True)
class Check:
    """``every`` is a duration such as ``90s``, or a cron expression in UTC; ``timeout`` is in seconds."""

    name: str
    kind: str
    target: str
    every: str
    query: str = ""
    expect: str | int | None = None
    timeout: float = 10.0
    enabled: bool = True
    notify: tuple[str, ...] = ()


@dataclass(frozen=True)
class Declared:
    """``smtp`` is host:port; ``log`` is relative to the directory of the file."""

    checks: tuple[Check, ...]
    log: Path
    smtp: str
    sender: str
    keep_days: int = 90


def read(path: Path) -> Declared:
    """ValueError names the check and the invalid key: `pollconsumer check` prints it on one line."""
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    checks = tuple(_check(name, entry) for name, entry in given.pop("checks", {}).items())
    return Declared(**given | {"checks": checks, "log": path.parent / given["log"]})


def _check(name: str, entry: dict[str, object]) -> Check:
    try:
        check = Check(name=name, **entry | {"notify": tuple(entry.get("notify", ()))})  # type: ignore[arg-type]  # what does not fit raises
    except TypeError as error:
        raise ValueError(f"checks.{name}: {error}") from None
    if check.kind not in KINDS:
        raise ValueError(f"checks.{name}: kind {check.kind!r} is none of {', '.join(KINDS)}")
    return check
