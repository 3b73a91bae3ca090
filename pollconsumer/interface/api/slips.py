"""Common mistakes with applications and handlers: the errors and warnings that say what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from pollconsumer.core.errors import BadData, shown, similar, suggestion
from pollconsumer.core.users_code import called
from pollconsumer.interface.api.registry import RegisteredHandler
from pollconsumer.interface.logs.logs import log
from pollconsumer.runtime.handling.arguments import BadArguments, refuse_thrown

LATER = "using(in_=...).enqueue(...)"
OF_HANDLERS = {
    "delay": "enqueue(...)",
    "send": "enqueue(...)",
    "apply_async": LATER,
    "send_with_options": LATER,
    "schedule": LATER,
    "enqueue_in": LATER,
    "enqueue_at": "using(at=...).enqueue(...)",
    "message": "args(...)",
    "s": "args(...)",
    "signature": "args(...)",
    "retry": "raise RetryIn(60)",
}
OF_BOUND = OF_HANDLERS | {"using": "one using(...) with all options", "args": "args(...).using(...)"}
OF_ARGS = {"enqueue": "handler.enqueue(...), or handler.enqueue_many([...])", "delay": "handler.enqueue(...)"}
OF_HANDLES = {
    **dict.fromkeys(("get", "result", "return_value"), "wait()"),
    **dict.fromkeys(("failed", "get_status", "is_failed", "is_finished", "ready", "successful"), "state"),
    **dict.fromkeys(("requeue", "retry"), "redrive()"),
    **dict.fromkeys(("abort", "delete", "revoke"), "cancel()"),
}
OF_APPLICATIONS = {
    **dict.fromkeys(("task", "job", "actor", "register", "periodic_task", "cron"), "handler, or every"),
    **dict.fromkeys(("send_task", "delay"), "enqueue"),
    "enqueue_many": "handler.enqueue_many([...])",
    **dict.fromkeys(("run", "start", "work"), "the command pollconsumer run"),
    **dict.fromkeys(("enqueue_in", "enqueue_at"), "enqueue(name, {...}, in_=...) or at=..."),
    "schedule": "every, or enqueue(name, {...}, in_=...) for one message",
}
BY_QUEUE = "if another program has it, name its queue with --queue"
BY_CONFIGURATION = "give the configuration that has it, with --config"
"""What a user can do about a handler that is not in the configuration."""
MOST_SHOWN = 5
"""Number of handlers that an error lists."""


def hinting(what: str, hints: dict[str, str]) -> Callable[[Any, str], Any]:
    """A ``__getattr__`` for ``what``, whose AttributeError for a name in ``hints`` says what to write instead."""

    def __getattr__(self: Any, name: str) -> NoReturn:  # noqa: N807
        if name in hints:  # with its name Python would add a suggestion of its own
            raise AttributeError(f"{what} has no {name}; did you mean {hints[name]}?", name=None)
        raise AttributeError(f"{what} has no {name}", name=name, obj=self)

    return __getattr__


def refuse_handler_object(given: object) -> NoReturn:
    """Raise the TypeError for a handler, or what its ``args`` returns, given in place of a handler's name."""
    registered = getattr(getattr(given, "_maker", None), "registered", None)
    name = getattr(given if registered is None else registered.function, "__name__", None)
    if name is None:
        raise TypeError(f"enqueue takes a handler's name, as text, not {type(given).__name__}")
    raise TypeError(f"enqueue takes a handler's name, as text; for the function write {name}.enqueue(...)")


def refuse_handler(name: str, known: Collection[str], fix: str = BY_QUEUE) -> NoReturn:
    """Raise the BadData for a handler ``name`` that is not among the configuration's ``known`` handlers."""
    reason = "no module or command of this configuration has it"
    if fix:
        near = sorted(known) if len(known) <= MOST_SHOWN else similar(name, known, MOST_SHOWN, at_least=0.3)
        here = f"known here: {', '.join(near)}; " if near else ""
        reason += (
            f'; {here}if it was renamed, add aliases=["{shown(name)}"] to the handler that has another name now; {fix}'
        )
    raise BadData("unknown handler", name, suggestion(name, known, reason))


def warn_of_handler(name: str, known: Collection[str]) -> None:
    """Warn that the application has no handler ``name``. It is not refused, since another program may have it."""
    meant = suggestion(name, known, "if another program has it, name its queue: queue=...")
    log.warning("%s", f"this application has no handler {shown(name)}, the message is enqueued all the same; {meant}")


def check_arguments(
    handler: RegisteredHandler, payload: Mapping[str, Any], retry: object = None, *, recurs: bool = False
) -> None:
    """Raise BadData if the handler would refuse the JSON ``payload``, or has no policy named ``retry``. ``recurs``: the
    payload is that of a recurrence."""
    arguments, given = handler.arguments, dict(payload)
    if recurs and handler.definition.takes_occurrence:
        given["occurrence"] = datetime.now(UTC).isoformat()
    try:
        called(arguments.bind, given)
    except BadArguments as error:
        problem = str(error).removeprefix("bad_arguments: ")
        raise BadData(f"arguments of {handler.definition.name}: {problem}", None, arguments.hint(given)) from None
    except Exception as error:  # the user's type raises, and will again when the message is handled
        refuse_thrown(error, arguments.bind, given)
    check_retry(handler, retry)


def check_retry(handler: RegisteredHandler, retry: object) -> None:
    """Raise BadData if the handler's application has no policy named ``retry``. Only text is checked."""
    if isinstance(retry, str) and retry not in handler.definition.policies:
        known = handler.definition.policies
        raise BadData("retry", repr(retry), suggestion(retry, known, "register it: app.retry_policy(name, policy)"))
