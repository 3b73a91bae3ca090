"""What an application has besides its users' methods: registrations, and messages by their handlers' names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Unpack

from pollconsumer.core.errors import CannotCreate, ConfigurationError, StoreUnreachable
from pollconsumer.core.messages.message import Codec, NewMessage
from pollconsumer.interface.api import slips
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.registry import Application, RegisteredHandler, registry
from pollconsumer.interface.api.store_calls import StoreCalls
from pollconsumer.runtime.new_messages import Defaults, SendOptions, drafted, new_message, refuse_unknown
from pollconsumer.store.queues.producer import Producer


class AppCalls(StoreCalls, Application):
    """The inner side of a `PollConsumer`, which our own modules call. `calls_of` returns it."""

    def __init__(
        self,
        config: str | os.PathLike[str] | None,
        store: Any,
        namespace: str | None,
        patience: float,
        codec: Codec | None,
    ) -> None:
        if codec is not None and not all(callable(getattr(codec, name, None)) for name in ("encode", "decode")):
            raise ConfigurationError("codec", repr(codec), "an object with encode(bytes) and decode(bytes)")
        super().__init__(config, store, namespace, patience, codec)
        Application.__init__(self)
        self._warned_of: set[str] = set()

    def new_message(self, handler: str, payload: Mapping[str, Any], **options: Unpack[SendOptions]) -> NewMessage:
        """The message that `PollConsumer.enqueue` sends, before hooks and codec. Raises its errors."""
        return self.placed(self.checked_message(handler, payload, options), options)

    async def enqueue_by_name_async(
        self, handler: str, payload: Mapping[str, Any], options: SendOptions
    ) -> Handle[Any]:
        """`PollConsumer.enqueue_async`."""
        message = self.checked_message(handler, payload, options)
        if self.hooks.before_enqueue:
            message = drafted(message, self.hooks.before_enqueue)  # in the caller's task, for a hook's trace

        def call(store: Producer) -> Handle[Any]:
            given = self._coded(self.placed(message, options))
            entry = store.enqueue_one(given)
            return Handle(entry.id, given.queue, self, duplicate=entry.duplicate)

        try:
            return await self._make_async(call)
        except (StoreUnreachable, CannotCreate) as error:
            return (await self._spooled_async([self._coded(self.placed(message, options))], error))[0]

    def placed(self, message: NewMessage, options: SendOptions) -> NewMessage:
        """``message`` with the queue and the rate of its handler, unless ``options`` give them."""
        defaults = self.defaults_of(message.handler)
        if options.get("queue") is None:
            message = message._replace(queue=defaults.queue)
        return defaults.rated(message)

    def checked_message(self, handler: str, payload: Mapping[str, Any], options: SendOptions) -> NewMessage:
        """A message, checked against its handler, as far as this process knows that."""
        if not isinstance(handler, str):
            slips.refuse_handler_object(handler)
        known = self.known(handler, anywhere=options.get("queue") is not None)
        if known is None or not isinstance(payload, dict):
            return new_message(handler, payload, **options)
        refuse_unknown(options)
        slips.check_retry(known, options.get("retry"))
        return new_message(handler, known.arguments.json_of(payload), **options)

    def defaults_of(self, handler: str) -> Defaults:
        """The defaults of a handler. It is registered in this process for the same store, or is a program."""
        known = self.known(handler)
        return self.settings().defaults_of(handler) if known is None else known.definition.defaults

    def known(self, handler: str, anywhere: bool = True) -> RegisteredHandler | None:
        """The handler of that name that this process has registered for the same store.

        BadData if the whole configuration was imported and has no such handler, unless it may be ``anywhere``.
        """
        known = self.handlers.get(handler) or registry.known(handler, self.location)
        if known is not None:
            return known
        imported = registry.imported
        if not anywhere and imported is not None and not any(self.location) and handler not in imported:
            slips.refuse_handler(handler, imported)
        if not anywhere and self.handlers and handler not in self._warned_of:
            self._warned_of.add(handler)
            if registry.imported is None and handler not in self.settings().commands:
                slips.warn_of_handler(handler, self.handlers)
        return None
