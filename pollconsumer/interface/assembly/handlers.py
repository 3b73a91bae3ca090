"""Imports the modules that register handlers."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from pollconsumer.core.errors import ConfigurationError, PollConsumerError, shown
from pollconsumer.interface.api.handler_options import place_of
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.settings.writable import refuse_writable_modules
from pollconsumer.runtime.handling.handler import with_hooks
from pollconsumer.runtime.handling.outcome import describe, text_of
from pollconsumer.runtime.handling.stray_forks import end_stray

if TYPE_CHECKING:
    from pollconsumer.interface.settings.model import Settings
    from pollconsumer.runtime.handling.handler import Handler
    from pollconsumer.runtime.programs.notes import Programs


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
    """Handlers by name, of the modules in ``settings``. ConfigurationError for one that cannot be imported.

    The directory of the configuration file is first on sys.path, and a ``PollConsumer()`` made in them has these
    settings.
    """
    registry.settings = settings
    if settings.handlers:
        if not settings.trust_writable:
            refuse_writable_modules(settings.directory, settings.handlers)
        directory = str(settings.directory)
        if sys.path[:1] != [directory]:
            sys.path.insert(0, directory)
        for module in settings.handlers:
            _import(module)
    return {name: with_hooks(each.definition, each.app.hooks) for name, each in registry.handlers().items()}


def _import(module: str) -> None:
    pid = os.getpid()
    try:
        _import_here(module)
    except BaseException as error:
        end_stray(pid, error)
        raise
    end_stray(pid, None)


def _import_here(module: str) -> None:
    try:
        import_module(module)
    except ConfigurationError:
        raise
    except PollConsumerError as error:
        raise ConfigurationError(f"handlers: {module}: {error}") from None
    except SystemExit:
        raise ConfigurationError("handlers", module, "the module exits when it is imported") from None
    except ModuleNotFoundError as error:
        reason = f"{shown(text_of(error))}; is it in the configuration file's directory?"
        raise ConfigurationError("handlers", module, reason) from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            raise  # Ctrl-C; launches handle signals differently
        raise ConfigurationError("handlers", module, f"importing it raised {shown(describe(error))}") from None
