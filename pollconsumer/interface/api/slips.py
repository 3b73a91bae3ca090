"""What people who know other queues write, and what is written here. Nothing here is reached by a call that is
right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

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
OF_HANDLES = dict.fromkeys(("result", "get"), "wait()") | dict.fromkeys(("ready", "successful", "failed"), "state")
OF_APPLICATIONS = {
    **dict.fromkeys(("task", "job", "actor", "register", "periodic_task", "cron"), "handler, or every"),
    **dict.fromkeys(("send_task", "delay"), "enqueue"),
    "enqueue_many": "handler.enqueue_many([...])",
    **dict.fromkeys(("run", "start", "work"), "the command pollconsumer run"),
    **dict.fromkeys(("enqueue_in", "enqueue_at", "schedule"), "enqueue(name, {...}, in_=...) or at=..."),
}


def hinting(what: str, hints: dict[str, str]) -> Callable[[Any, str], Any]:
    """A ``__getattr__`` for ``what``: the AttributeError of a name says what to write in its place."""

    def __getattr__(self: Any, name: str) -> NoReturn:  # noqa: N807
        hint = f"; did you mean {hints[name]}?" if name in hints else ""
        raise AttributeError(f"{what} has no {name}{hint}", name=name, obj=self)

    return __getattr__


def refuse_handler_object(given: object) -> NoReturn:
    """Raise the TypeError for a handler, or what its ``args`` returns, where a handler's name is wanted."""
    registered = getattr(getattr(given, "_maker", None), "registered", None)
    name = getattr(given if registered is None else registered.function, "__name__", None)
    if name is None:
        raise TypeError(f"enqueue takes a handler's name, as text, not {type(given).__name__}")
    raise TypeError(f"enqueue takes a handler's name, as text; for the function write {name}.enqueue(...)")
