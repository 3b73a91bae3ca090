"""Defers a handler's timeout while our own code runs."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pollconsumer.runtime.handling.alarm import Limit


in_force: dict[int, Limit] = {}
"""By the handler's thread."""


class Shield:
    """A block of our code, called by a handler, that a timeout does not interrupt: the handler is stopped after it."""

    __slots__ = ("_limit",)

    def __enter__(self) -> None:
        self._limit = in_force.get(get_ident())
        if self._limit is not None:
            try:
                self._limit.defer()
            except BaseException:
                self._limit.deferred = False
                raise

    def __exit__(self, *_: object) -> None:
        if self._limit is not None:
            self._limit.deferred = False
