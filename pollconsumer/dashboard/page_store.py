"""The store as pages ask it: an application is one, and so is a connection that requests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from threading import Lock
from typing import Protocol, TypeVar

from pollconsumer.store.store import Store

T = TypeVar("T")


class PageStore(Protocol):
    """A store. Each question is given a connection that no other has meanwhile."""

    def ask(self, question: Callable[[Store], T]) -> T: ...

    def ask_for_each(self, question: Callable[[Store], Iterator[T]]) -> Iterator[T]:
        """Yield what a question yields."""


class SharedStore:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._one_at_a_time = Lock()

    def ask(self, question: Callable[[Store], T]) -> T:
        with self._one_at_a_time:
            return question(self._store)

    def ask_for_each(self, question: Callable[[Store], Iterator[T]]) -> Iterator[T]:
        """Yield what a question yields; other requests may use the connection in between."""
        found = question(self._store)
        while True:
            with self._one_at_a_time:
                several = [*islice(found, 1)]
            if not several:
                return
            yield several[0]
