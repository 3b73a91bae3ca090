"""Refuses messages that their handler, where it is known here, would refuse or never get: before they are sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from pollconsumer.core.errors import BadData, shown, suggestion
from pollconsumer.core.users_code import called
from pollconsumer.interface.api.registry import RegisteredHandler
from pollconsumer.runtime.handling.validation.argument_errors import BadArguments, refuse_thrown

BY_QUEUE = "if another program has it, name its queue with --queue"
BY_CONFIGURATION = "give the configuration that has it, with --config"
"""What to do about a handler that the configuration does not have."""
MOST_SHOWN = 5
"""Handlers that an error lists."""


def refuse_handler(name: str, known: Collection[str], fix: str = BY_QUEUE) -> NoReturn:
    """Raise the BadData for a handler that the configuration does not have."""
    said = "no module or command of this configuration has it"
    if fix:
        from difflib import get_close_matches  # no launch needs it

        near = sorted(known) if len(known) <= MOST_SHOWN else get_close_matches(name, known, MOST_SHOWN, cutoff=0.3)
        here = f"known here: {', '.join(near)}; " if near else ""
        said += (
            f'; {here}if it was renamed, add aliases=["{shown(name)}"] to the handler that has another name now; {fix}'
        )
    raise BadData("unknown handler", name, suggestion(name, known, said))


def warn_of_handler(name: str, known: Collection[str]) -> None:
    """Warn of a handler that an application does not have. Not refused: another program may have it."""
    from pollconsumer.interface.logs.logs import log

    meant = suggestion(name, known, "if another program has it, name its queue: queue=...")
    log.warning("%s", f"this application has no handler {shown(name)}, the message is enqueued all the same; {meant}")


def check_arguments(handler: RegisteredHandler, payload: Mapping[str, Any], *, recurs: bool = False) -> None:
    """Raise BadData if the handler will refuse a JSON ``payload``, an occurrence's if it ``recurs``."""
    arguments, given = handler.arguments, dict(payload)
    if recurs and handler.definition.takes_occurrence:
        given["occurrence"] = datetime.now(UTC).isoformat()
    try:
        called(arguments.bind, given)
    except BadArguments as error:
        problem = str(error).removeprefix("bad_arguments: ")
        raise BadData(f"arguments of {handler.definition.name}: {problem}", None, arguments.hint(given)) from None
    except Exception as error:  # a type of the user's that raises will do so again where the message is handled
        refuse_thrown(error, arguments.bind, given)


def check_retry(handler: RegisteredHandler, retry: object) -> None:
    """Raise BadData if the handler's application has no such policy. What is no text is refused as any option is."""
    if isinstance(retry, str) and retry not in handler.definition.policies:
        known = handler.definition.policies
        raise BadData("retry", repr(retry), suggestion(retry, known, "register it: app.retry_policy(name, policy)"))
