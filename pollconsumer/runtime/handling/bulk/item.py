"""What a bulk handler is given: its messages, and a context of the call."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from pollconsumer.runtime.handling.context import Context

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=dict[str, Any])
else:
    from typing import TypeVar

    T = TypeVar("T")


class Item(NamedTuple, Generic[T]):
    """One of the messages of a bulk handler's call.

    ``payload``: a dict, or what the annotation ``list[Item[Model]]`` converts that to. ``headers``: what the producer
    sent with the message, apart from its payload. ``attempt``: the number of the attempt, from 1.
    """

    payload: T
    id: str = ""
    headers: Mapping[str, str] = MappingProxyType({})
    attempt: int = 1


class BulkContext:
    """A call of a bulk handler, from the handler's point of view."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def time_left(self) -> float:
        """Seconds until the window or the handler's timeout ends, at least 0."""
        return self._context.time_left()

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the launch was signalled, its lease is lost, the time is over, or all messages of the call
        are to stop."""
        return self._context.cancelled
