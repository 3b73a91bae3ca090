"""Chains: messages each of which is enqueued with the completion of the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from pollconsumer.core.errors import BadData, NotFound, UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.sequel import Sequel, decoded, encoded, identified, packed
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.handle_actions import Act
from pollconsumer.interface.api.store_calls import StoreCalls
from pollconsumer.runtime.new_messages import Sendable, callback_of, message_of, refuse_own_identity
from pollconsumer.store.reading.messages import Message

MOST_LINKS = 100


class LinkState(StrEnum):
    """The state of a link that is not enqueued yet, beside those of messages."""

    WAITING = "waiting"

    @property
    def has_ended(self) -> bool:
        return False


class Chain:
    """Links, made by ``PollConsumer.chain``. A member of a batch, too: it counts as one."""

    def __init__(self, app: StoreCalls, links: Sequence[Sendable], failed: Sendable | None) -> None:
        """Raise UsageError for no links, too many, or one that has a key, callbacks, or, after the first, an id."""
        if not 0 < len(links) <= MOST_LINKS:
            raise UsageError("chain", f"{len(links)} links", f"give 1 to {MOST_LINKS}")
        self._app, self._links, self._failed = app, links, failed
        self.__message__()

    def __message__(self) -> NewMessage:
        """A new message of the first link, with the others as its sequel."""
        first, *others = [message_of(link, "a link of a chain") for link in self._links]
        for message in (first, *others):
            if message.sequel:
                raise UsageError(
                    "a link of a chain has callbacks, or is a chain", None, "give failed= to the whole chain"
                )
        refuse_own_identity(first._replace(digest=""), "a link of a chain")
        for message in others:
            refuse_own_identity(message, "a link of a chain")
        failed = None if self._failed is None else callback_of(self._failed, first.id, "failed")
        sequel = Sequel(failed=failed, links=[packed(message) for message in others])
        return identified(first._replace(sequel=encoded(sequel)), first.id)

    def enqueue(self) -> LinkHandle:
        """Enqueue the first link. Returns a handle to the last one, which says ``waiting`` until it is enqueued. Errors
        are those of ``PollConsumer.enqueue``."""
        first = self.__message__()
        return self._handle(first, self._app.enqueue_one(first).duplicate)

    async def enqueue_async(self) -> LinkHandle:
        """`enqueue` without blocking the event loop."""
        first = self.__message__()
        return self._handle(first, (await self._app.enqueue_one_async(first)).duplicate)

    def _handle(self, first: NewMessage, duplicate: bool | None) -> LinkHandle:
        links = [(first.queue, first.id)]
        if first.sequel:
            links += [(link["queue"], link["id"]) for link in decoded(first.sequel.encode())[0].links]
        return LinkHandle(self._app, links, duplicate=duplicate)


class LinkHandle(Handle[Any]):
    """The last link of a chain. While it is not enqueued yet, its state is ``waiting``, and `wait` waits for it, or
    raises NotCompleted for the link with which the chain has ended. `status` is that of the link that came last, on
    which `cancel`, `stop`, `redrive` and `reschedule` act: a chain ends with the link that is cancelled."""

    __slots__ = ("_links",)

    def __init__(self, app: StoreCalls, links: Sequence[tuple[str, str]], *, duplicate: bool | None) -> None:
        queue, message_id = links[-1]
        super().__init__(message_id, queue, app, duplicate=duplicate)
        self._links = links

    @property
    def state(self) -> State | LinkState:  # type: ignore[override]  # it may not be enqueued yet
        """The link's state as it is now: asks the store."""
        return self._seen(self.status())

    async def state_async(self) -> State | LinkState:  # type: ignore[override]  # as above
        return self._seen(await self.status_async())

    def _seen(self, latest: Message) -> State | LinkState:
        return latest.state if latest.id == self.id else LinkState.WAITING

    def status(self) -> Message:
        """All that is known of the link that came last. NotFound if none is kept any more."""
        for queue, message_id in reversed(self._links):
            try:
                return self._app.look(queue, message_id)
            except NotFound:
                continue
        raise NotFound("no such message", self.id, "its chain is no longer kept")

    async def status_async(self) -> Message:
        for queue, message_id in reversed(self._links):
            try:
                return await self._app.look_async(queue, message_id)
            except NotFound:
                continue
        raise NotFound("no such message", self.id, "its chain is no longer kept")

    def _act(self, act: Callable[[str, str], Act]) -> None:
        latest = self.status()
        while True:
            try:
                return self._app.ask(act(latest.queue, latest.id))
            except BadData as refusal:
                latest = self._after(latest.id, self.status(), refusal)

    async def _act_async(self, act: Callable[[str, str], Act]) -> None:
        latest = await self.status_async()
        while True:
            try:
                return await self._app.ask_async(act(latest.queue, latest.id))
            except BadData as refusal:
                latest = self._after(latest.id, await self.status_async(), refusal)

    def _after(self, link: str, latest: Message, refusal: BadData) -> Message:
        """The link to act on, if it came after one that was completed meanwhile; else raises."""
        if latest.id != link:
            return latest
        if self._goes_on(latest):
            raise BadData("chain", self.id, f"{link} is completed, and the next link on its way: try again")
        raise refusal

    def _goes_on(self, message: Message) -> bool:
        return message.state is State.COMPLETED and message.id != self.id
