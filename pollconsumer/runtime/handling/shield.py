"""Defers a handler's timeout while our own code runs."""

from __future__ import annotations

from threading import get_ident

in_force: dict[int, Stopper] = {}
"""The stopper of each handler, by the handler's thread."""


class Stopper:
    """Stops a handler, but not while it is ``deferred``."""

    __slots__ = ("deferred",)
    deferred: bool

    def defer(self) -> None:
        self.deferred = True

    def hasten(self, seconds: float) -> None:
        """Stop the handler in ``seconds`` at the latest."""
        raise NotImplementedError

    def end(self) -> None:
        """Stop watching. Called in the handler's thread when the handler has ended."""


class Shield:
    """A block of our code, called by a handler, that no timeout interrupts. The handler is stopped after the block."""

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
