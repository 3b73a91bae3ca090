"""pollconsumer: the job queue for places that only give you cron."""

from __future__ import annotations

TYPE_CHECKING = False
"""Defined here, not imported from ``typing``: that import takes time, during which Ctrl-C would still print a
traceback. `__main__` handles Ctrl-C only later."""

if TYPE_CHECKING:
    from typing import Any

    from pollconsumer.core.errors import (
        BadData,
        ChildFailed,
        ConfigurationError,
        Conflict,
        NotCompleted,
        NotFound,
        NotReplicated,
        OutcomeUnknown,
        PayloadTooLarge,
        PollConsumerError,
        QueueFull,
        Refused,
        StoreUnreachable,
        UsageError,
        WaitRefused,
    )
    from pollconsumer.core.retry import (
        Backoff,
        ErrorPolicy,
        Fatal,
        HandlerTimeout,
        Partial,
        ProcessDied,
        RetryIn,
        RetryPolicy,
        Skip,
        Yield,
    )
    from pollconsumer.interface.api.app import PollConsumer
    from pollconsumer.interface.api.handle import Handle
    from pollconsumer.runtime.handling.bulk import BulkContext, Item
    from pollconsumer.runtime.handling.context import Context
    from pollconsumer.runtime.handling.handler_batches import Batch
    from pollconsumer.runtime.new_messages import Draft

    __version__: str

__all__ = [
    "Backoff",
    "BadData",
    "Batch",
    "BulkContext",
    "ChildFailed",
    "ConfigurationError",
    "Conflict",
    "Context",
    "Draft",
    "ErrorPolicy",
    "Fatal",
    "Handle",
    "HandlerTimeout",
    "Item",
    "NotCompleted",
    "NotFound",
    "NotReplicated",
    "OutcomeUnknown",
    "Partial",
    "PayloadTooLarge",
    "PollConsumer",
    "PollConsumerError",
    "ProcessDied",
    "QueueFull",
    "Refused",
    "RetryIn",
    "RetryPolicy",
    "Skip",
    "StoreUnreachable",
    "UsageError",
    "WaitRefused",
    "Yield",
]

_HOMES = {
    "PollConsumer": "pollconsumer.interface.api.app",
    **dict.fromkeys(("Backoff", "ErrorPolicy", "RetryPolicy"), "pollconsumer.core.retry"),
    **dict.fromkeys(("Fatal", "Partial", "RetryIn", "Skip", "Yield"), "pollconsumer.core.retry"),
    **dict.fromkeys(("HandlerTimeout", "ProcessDied"), "pollconsumer.core.retry"),
    "Batch": "pollconsumer.runtime.handling.handler_batches",
    "BulkContext": "pollconsumer.runtime.handling.bulk",
    "Context": "pollconsumer.runtime.handling.context",
    "Draft": "pollconsumer.runtime.new_messages",
    "Handle": "pollconsumer.interface.api.handle",
    "Item": "pollconsumer.runtime.handling.bulk",
}


def __getattr__(name: str) -> Any:
    # Every command imports this package, so the API is imported lazily.
    if name == "__version__":
        from pollconsumer.interface.settings.names import VERSION

        return VERSION
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "pollconsumer.core.errors")), name)


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", *(name for name in globals() if name.startswith("__"))})
