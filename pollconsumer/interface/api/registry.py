"""The process-wide registry of applications: modules need not share one application."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pollconsumer.interface.api.handler_options import refuse_second
from pollconsumer.interface.settings.model import RecurrenceSettings, Settings
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.hooks import Hooks
from pollconsumer.runtime.handling.validation.arguments import Arguments
from pollconsumer.store.queues.producer import Producer


class RegisteredHandler(NamedTuple):
    """A handler as its application has it; ``hooks`` are the application's."""

    definition: Handler
    function: Callable[..., Any]
    arguments: Arguments
    hooks: Hooks


class Application:
    """The registrations of a `PollConsumer`, and the ``place`` of its store."""

    handlers: dict[str, RegisteredHandler]
    queues: set[str]
    recurring: dict[str, RecurrenceSettings]
    hooks: Hooks
    place: tuple[object, str | None]

    def own_config(self) -> Path | None:
        """The configuration file that it reads outside of commands; None if there is none."""
        raise NotImplementedError


class StandIn(Protocol):
    """Replaces every application's store, under test."""

    def store_of(self, app: object) -> Producer: ...

    def pause(self, seconds: float) -> None:
        """Wait between polls of an awaited message."""


class Registry:
    def __init__(self) -> None:
        self.apps: list[Application] = []
        self.settings: Settings | None = None
        """The settings of the command that imports the modules, for applications without their own store."""
        self.imported: Collection[str] | None = None
        """Names of all handlers and programs of ``settings``, once the modules are imported; None before that, or if
        there are neither."""
        self.stand_in: StandIn | None = None

    def add(self, *apps: Application) -> None:
        self.apps += [app for app in apps if app not in self.apps]

    def handlers(self) -> dict[str, RegisteredHandler]:
        """The handlers of all applications, by name. ConfigurationError if two have one name."""
        found: dict[str, RegisteredHandler] = {}
        for app in self.apps:
            for name, registered in app.handlers.items():
                if name in found:
                    refuse_second(name, found[name].function, registered.function)
                found[name] = registered
        return found

    def known(self, handler: str, place: tuple[object, str | None]) -> RegisteredHandler | None:
        """The handler of that name in this process, of an application whose store is at ``place``."""
        apps = (app for app in self.apps if handler in app.handlers and app.place == place)
        return next((app.handlers[handler] for app in apps), None)

    def other_configs(self, settings: Settings) -> list[Path]:
        """Configurations that applications have outside of the command with these settings."""
        found = {app.own_config() for app in self.apps if not any(app.place)}
        here = settings.config
        return sorted(each for each in found if each is not None and (here is None or not each.samefile(here)))

    def queues(self) -> set[str]:
        return {queue for app in self.apps for queue in app.queues}

    def recurrences(self) -> dict[str, RecurrenceSettings]:
        return {name: recurrence for app in self.apps for name, recurrence in app.recurring.items()}

    @contextmanager
    def afresh(
        self, apps: Iterable[Application] = (), settings: Settings | None = None, stand_in: StandIn | None = None
    ) -> Iterator[None]:
        """Have only these applications until the block ends; then the previous ones again, without those made in the
        block."""
        before = vars(self).copy()
        self.apps, self.settings, self.imported, self.stand_in = list(apps), settings, None, stand_in
        try:
            yield
        finally:
            vars(self).update(before)


registry = Registry()
