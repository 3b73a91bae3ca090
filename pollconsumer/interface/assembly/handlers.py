"""Imports the modules that register handlers."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.api.handler_options import place_of
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.settings.load import DJANGO_VARIABLE, django_site
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.user_imports import find_modules, importing
from pollconsumer.runtime.handling.handler import Handler, with_hooks

if TYPE_CHECKING:
    from pollconsumer.runtime.children.notes import Programs


def load_handlers(settings: Settings, programs: Programs | None = None) -> dict[str, Handler]:
    """Handlers by name, of the modules and commands in ``settings``; commands keep notes in ``programs``.
    ConfigurationError for one that cannot be imported or run."""
    handlers = import_handlers(settings)
    if settings.commands:
        from pollconsumer.interface.assembly.programs import load_commands, running_programs

        for name, handler in load_commands(settings, programs or running_programs(settings)).items():
            if name in handlers:
                place = place_of(registry.handlers()[name].function)
                places = f"as a function at {place} and as a command in the configuration"
                raise ConfigurationError("handler registered twice", name, f"{places}; rename one")
            handlers[name] = handler
    return handlers


def import_handlers(settings: Settings) -> dict[str, Handler]:
    """Handlers by name, of the modules in ``settings`` and of the Django site. ConfigurationError for one that cannot
    be imported.

    The directory of the configuration file is first on sys.path, and a ``PollConsumer()`` made in them has these
    settings.
    """
    registry.settings = settings
    site = django_site()
    if modules := settings.handlers if site is None else (site, *settings.handlers):
        find_modules(settings, modules)
    if site is not None:
        _import_site(site, settings)
    for module in settings.handlers:
        with importing("handlers", module):
            import_module(module)
    handlers = {name: with_hooks(each.definition, each.hooks) for name, each in registry.handlers().items()}
    registry.imported = {*handlers, *settings.commands} if modules or settings.commands else None
    if not (site or _has_database_of_django()) or registry.stand_in is not None:
        return handlers  # a test's connections are in a transaction of its own
    from pollconsumer.interface.assembly.wing_parts import wing_part

    closing_connections = wing_part("closing_connections")
    return {name: handler.wrapped(closing_connections) for name, handler in handlers.items()}


def _has_database_of_django() -> bool:
    """Whether the user's modules have configured Django themselves, and imported its database."""
    found = sys.modules.get("django.conf")
    return found is not None and "django.db" in sys.modules and bool(found.settings.configured)


def _import_site(site: str, settings: Settings) -> None:
    from pollconsumer.interface.assembly.wing_parts import wing_part

    try:
        import_site = wing_part("import_site")
    except ImportError as error:
        raise ConfigurationError(DJANGO_VARIABLE, site, f"{error}, or unset the variable") from None
    import_site(site, settings)
