"""Defers the interruption of a handler while our own code runs."""

from __future__ import annotations

from threading import get_ident

in_force: dict[int, Stopper] = {}
"""For each thread in which a handler runs, what may interrupt it."""


class Stopper:
    """Interrupts a handler at a limit. While ``deferred`` is True, it waits."""

    __slots__ = ("deferred",)
    deferred: bool

    def defer(self) -> None:
        self.deferred = True

    def hasten(self, seconds: float) -> None:
        """Interrupt the handler after ``seconds``, unless its limit is earlier."""
        raise NotImplementedError

    def end(self) -> None:
        """The handler has ended: do not interrupt it any more. Called in the handler's thread."""


class Shield:
    """A block of our code, called by a handler, that no timeout interrupts. The interruption comes after it."""

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
