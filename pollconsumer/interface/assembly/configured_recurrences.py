"""Builds validated recurrences from the configuration and ``app.every``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.handling.handler import Handler

if TYPE_CHECKING:
    from pollconsumer.core.recurrence import Recurrence


def configured_recurrences(settings: Settings) -> dict[str, Recurrence]:
    """The recurrences that the next launch defines, by name. ConfigurationError as `load_recurrences`."""
    from pollconsumer.interface.assembly.handlers import load_handlers

    return {each.name: each for each in load_recurrences(settings, load_handlers(settings))}


def load_recurrences(settings: Settings, handlers: Mapping[str, Handler]) -> list[Recurrence]:
    """The recurrences of the configuration and of the imported modules. Of two with one name, the configuration's is
    taken. ConfigurationError for an invalid one."""
    chosen = registry.recurrences() | settings.recurrences
    if not chosen:
        return []
    from pollconsumer.core.notation.cron_expression import five_fields
    from pollconsumer.core.notation.timespan import parse_duration
    from pollconsumer.core.recurrence import Recurrence
    from pollconsumer.interface.settings.recurrence_rules import check_recurrence
    from pollconsumer.runtime.new_messages import Defaults

    recurrences = []
    for name, given in chosen.items():
        try:
            check_recurrence(name, given)
        except ValueError as error:
            raise ConfigurationError(f"recurrences.{name}: {error}") from None
        handler = handlers.get(given.handler)
        defaults = Defaults() if handler is None else handler.defaults
        fields = vars(given) | {
            "every": None if given.every is None else parse_duration(given.every),
            "cron": None if given.cron is None else five_fields(given.cron),
            "queue": given.queue or defaults.queue,
            "occurrence_wanted": handler is not None and handler.takes_occurrence,
        }
        try:
            recurrences.append(defaults.rated_recurrence(Recurrence(name=name, **fields)))
        except ValueError as error:
            raise ConfigurationError(f"recurrences.{name}: {error}") from None
    return recurrences
