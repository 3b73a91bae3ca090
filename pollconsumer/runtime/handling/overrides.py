"""A message's own options in place of its handler's."""

from __future__ import annotations

from typing import Any, NoReturn

from pollconsumer.core.messages.message_options import Options
from pollconsumer.runtime.handling.handler import Handler


def overridden(handler: Handler, options: Options) -> Handler:
    """``handler`` with the ``options`` of a message.

    A message that is handled at most once has one attempt: an option for more is ignored.
    """
    changes: dict[str, Any] = {}
    if options.max_attempts is not None and not handler.at_most_once:
        changes["max_attempts"] = options.max_attempts
    if options.retry is not None:
        changes["retry"] = handler.policies.get(options.retry) or _Unknown(options.retry)
    if options.timeout is not None:
        handler = handler.with_timeout(options.timeout)
    return handler._replace(**changes)


class _Unknown:
    """Stands for a policy that no application here has registered: its failure is reported, and the default delay
    applies."""

    def __init__(self, name: str) -> None:
        self._name = name

    def delay(self, attempt: int, chance: float) -> NoReturn:  # noqa: ARG002  as of every policy
        raise LookupError(f"no retry policy named {self._name} here")
