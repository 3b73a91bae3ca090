"""Messages that differ in id and payload alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from pollconsumer.core.messages.message import NO_OPTIONS, NewMessage


def may_be_alike(message: NewMessage) -> bool:
    """Whether a message is ready at once, in the order of its enqueueing, and has nothing that must be looked up: such
    ones can be enqueued as `Alike`, if they have the same options."""
    return message[4:9] == (0, None, None, "", 0) and not (message.digest or message.lifetime)


class Alike(Sequence[NewMessage]):
    """Messages that differ in id and payload alone, each made when it is asked for. The ids are new. ``options``: as of
    one for which `may_be_alike` is true."""

    def __init__(
        self,
        queue: str,
        handler: str,
        ids: Sequence[str],
        payloads: Sequence[bytes],
        options: Any = NO_OPTIONS,
    ) -> None:
        self.queue, self.handler, self.ids, self.payloads, self.options = queue, handler, ids, payloads, options

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> NewMessage: ...

    @overload
    def __getitem__(self, at: slice) -> Alike: ...

    def __getitem__(self, at: int | slice) -> NewMessage | Alike:
        if isinstance(at, slice):
            return Alike(self.queue, self.handler, self.ids[at], self.payloads[at], self.options)
        return NewMessage(self.ids[at], self.queue, self.handler, self.payloads[at], *self.options)
