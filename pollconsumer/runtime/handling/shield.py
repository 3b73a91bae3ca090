"""Defers a handler's timeout while our own code runs."""

from __future__ import annotations

from threading import get_ident
from typing import Protocol


class Limit(Protocol):
    """A timeout in force."""

    sparing: bool

    def spare(self) -> None:
        """Do not stop the handler until ``sparing`` is False again."""


in_force: dict[int, Limit] = {}
"""By the thread whose handler is to be stopped."""


class Unbroken:
    """A block of ours that a handler calls, and that a timeout must not leave in the middle: it is stopped after it."""

    __slots__ = ("_limit",)

    def __enter__(self) -> None:
        self._limit = in_force.get(get_ident())
        if self._limit is not None:
            try:
                self._limit.spare()
            except BaseException:
                self._limit.sparing = False
                raise

    def __exit__(self, *_: object) -> None:
        if self._limit is not None:
            self._limit.sparing = False
