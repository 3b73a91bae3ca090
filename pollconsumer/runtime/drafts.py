"""Messages about to be enqueued, as a producer's hooks see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.payloads import decode_payload
from pollconsumer.core.users_code import called

BeforeEnqueue = Callable[["Draft"], object]


class Draft:
    """A message that is about to be enqueued. Of all that it has, only ``headers``, a dict, can be changed."""

    __slots__ = ("_message", "headers")

    headers: dict[str, str]

    def __init__(self, message: NewMessage) -> None:
        self._message = message
        self.headers = dict(message.headers or {})

    @property
    def id(self) -> str:
        """The message's id."""
        return self._message.id

    @property
    def handler(self) -> str:
        """The name of its handler."""
        return self._message.handler

    @property
    def priority(self) -> int:
        """Smaller is sooner."""
        return self._message.priority

    @property
    def payload(self) -> dict[str, Any]:
        """A copy, as JSON has it."""
        return decode_payload(self._message.payload)


def drafted(message: NewMessage, hooks: Sequence[BeforeEnqueue]) -> NewMessage:
    """``message`` as ``hooks`` leave it. Raises what a hook raises, BadData for invalid headers."""
    from pollconsumer.core.messages.message import check_new_headers

    draft = Draft(message)
    for hook in hooks:
        called(hook, draft)
    return message._replace(headers=check_new_headers(draft.headers) or None)
