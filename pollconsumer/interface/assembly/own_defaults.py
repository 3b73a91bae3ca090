"""Defaults, checks and hooks of a handler, for messages that the command line enqueues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pollconsumer.core.errors import BadData, ConfigurationError
from pollconsumer.core.messages.message import Codec, NewMessage
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.api.registry import RegisteredHandler, registry
from pollconsumer.interface.api.slips import BY_QUEUE, check_arguments, check_retry, refuse_handler
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.load import NO_HANDLERS, django_site
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.new_messages import Defaults


class OwnDefaults:
    """Imports the configured modules lazily, once, for the first handler that needs them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._registered: Mapping[str, Handler] | None = None
        self._functions: Mapping[str, RegisteredHandler] = {}
        self._warned = False

    def warn_without_handlers(self) -> None:
        """Warn once if the launches of the configuration file have no handlers."""
        settings = self._settings
        if settings.config and not (self._warned or settings.handlers or settings.commands or django_site()):
            self._warned = True
            log.warning("%s", NO_HANDLERS)

    def of(self, handler: str) -> Defaults:
        """The defaults of ``handler``'s messages, with the queue ``default`` for an unknown handler. ConfigurationError
        if the modules cannot be imported."""
        registered = self.registered(handler)
        return self._settings.defaults_of(handler) if registered is None else registered.defaults

    def registered(self, handler: str) -> Handler | None:
        """``handler``; None if it is unknown, or a program. Raises as `of`."""
        if handler in self._settings.commands or not (self._settings.handlers or django_site()):
            return None
        if self._registered is None:
            self._registered = self._import()
            self._functions = registry.handlers()
        return self._registered.get(handler)

    def codec_of(self, handler: str) -> Codec | None:
        """The codec of ``handler``'s application. Raises as `of`."""
        known = self.registered(handler)
        return None if known is None else known.codec

    def checked(self, handler: str, payload: Mapping[str, Any], retry: str | None = None) -> None:
        """Raise BadData if the launches of this configuration would park a message of ``handler``, or refuse its
        arguments or its ``retry``. Raises as `of`."""
        known = self.function(handler)
        if known is not None:
            check_arguments(known, payload)
            check_retry(known, retry)
        elif retry is not None and handler in self._settings.commands:
            raise BadData("retry", repr(retry), "a program has no named policies: set retry in its table")

    def function(self, handler: str, fix: str = BY_QUEUE) -> RegisteredHandler | None:
        """``handler`` as it is registered; None for a program, or if the configuration names neither handlers nor
        programs. BadData, with a ``fix``, for a handler that the configuration does not have. Raises as `of`."""
        if self.registered(handler) is not None:
            return self._functions[handler]
        if handler not in self._settings.commands and (self._registered is not None or self._settings.commands):
            refuse_handler(handler, {*(self._registered or ()), *self._settings.commands}, fix)
        return None

    def drafted(self, message: NewMessage) -> NewMessage:
        """``message``, changed by the hooks ``before_enqueue`` of its handler's application.

        A hook's BadData is raised; ConfigurationError for any other exception of a hook, and as `of` raises it.
        """
        known = self.registered(message.handler)
        if known is None or known.hooks is None:
            return message
        from pollconsumer.runtime.drafts import drafted

        with refusing("before_enqueue", message.handler, "a hook"):
            return drafted(message, known.hooks.before_enqueue)

    def _import(self) -> Mapping[str, Handler]:
        from pollconsumer.interface.assembly.handlers import import_handlers

        try:
            return import_handlers(self._settings)
        except ConfigurationError as error:
            refusal = ConfigurationError(f"{error}; or name the queue: then no module is imported")
            refusal.traced = error.traced
            raise refusal from None
