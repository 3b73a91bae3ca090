"""Checks: recurrences that people put, change and remove while launches go on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pollconsumer import PollConsumer

KINDS = ("url", "sqlite", "postgresql")
LONGEST = 300.0


@dataclass(frozen=True)
class Check:
    """What to look at: the payload of a recurrence. ``timeout`` is in seconds."""

    name: str
    kind: str
    target: str
    query: str = ""
    expect: str = ""
    timeout: float = 10.0
    notify: str = ""
    """Addresses, separated by commas."""

    def __post_init__(self) -> None:
        """ValueError for what cannot be meant."""
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind!r} is none of {', '.join(KINDS)}")
        if not self.target:
            raise ValueError("target is empty")
        if self.kind != "url" and not self.query:
            raise ValueError("query is empty")
        if not 0 < self.timeout <= LONGEST:
            raise ValueError(f"timeout is {self.timeout:g} s; more than 0, at most {LONGEST:g}")


def put(app: PollConsumer, check: Check, every: str, owner: str) -> None:
    """Add ``check``, or change it; it runs at once if it is new or has another period. ValueError if it is invalid."""
    app.recurrences.put(
        check.name, every=every, handler="check", payload=asdict(check), overlap="skip", created_by=owner or None
    )
