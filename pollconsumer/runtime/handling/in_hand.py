"""Which message the caller is handling: what is logged meanwhile names it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class InHand(Protocol):
    @property
    def name(self) -> str:
        """The message's id as text."""

    @property
    def handler(self) -> str: ...

    @property
    def attempt(self) -> int: ...


IN_SLOT: ContextVar[InHand | None] = ContextVar("in_slot", default=None)
"""The message that this thread, or this task, handles."""
