"""The store as pages ask it: an application is one, and so is a connection that requests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from threading import Lock
from typing import Protocol, TypeVar

from pollconsumer.store.client.wire import Wire

T = TypeVar("T")


class PageStore(Protocol):
    """A store. Each question is given a connection that no other has meanwhile, and the namespace."""

    def ask(self, question: Callable[[Wire, str], T]) -> T: ...

    def ask_for_each(self, question: Callable[[Wire, str], Iterator[T]]) -> Iterator[T]:
        """Yield what a question yields."""


class SharedWire:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire, self._namespace = wire, namespace
        self._one_at_a_time = Lock()

    def ask(self, question: Callable[[Wire, str], T]) -> T:
        with self._one_at_a_time:
            return question(self._wire, self._namespace)

    def ask_for_each(self, question: Callable[[Wire, str], Iterator[T]]) -> Iterator[T]:
        """Yield what a question yields; other requests may use the connection in between."""
        found = question(self._wire, self._namespace)
        while True:
            with self._one_at_a_time:
                several = [*islice(found, 1)]
            if not several:
                return
            yield several[0]
