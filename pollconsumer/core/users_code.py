"""Calls of code that users give us: codecs, credential providers, hooks, types, policies.

Such code may raise anything. `SystemExit` and its like would end a launch, a command or a thread of pollconsumer. So
`called` raises an `Exception` in place of them, which callers handle like any other."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from pollconsumer.core.errors import ConfigurationError, PollConsumerError

T = TypeVar("T")

MOST_CHARACTERS = 200
OTHERS, OURS, OUR_THREAD = range(3)
"""The owner of the code at the bottom of a thread's stack: another program; a command or an endpoint of pollconsumer;
or a thread that pollconsumer has started, which no signal interrupts."""
_printing_on_stderr = ContextVar("users' code prints on standard error", default=False)
whose: ContextVar[int] = ContextVar("whose code runs here", default=OTHERS)


class TimeIsUp(BaseException):
    """Raised inside a handler at its timeout. Not an Exception, so that ``except Exception`` does not catch it."""


class Exited(Exception):
    """Users' code raised something like SystemExit, which is no subclass of Exception. The text names it."""


class UnreadableError(Exception):
    """Replaces an exception of users' code whose class raises when the exception is inspected."""


class lazy(Generic[T]):  # noqa: N801  it decorates as a function does
    """`functools.cached_property` without a lock. Before Python 3.12 that has one lock for all instances: users' code
    would run under it, and a process forked meanwhile would wait for it for ever. If threads compute the value at the
    same time, all get the same one."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _: type | None = None) -> T:
        made: T = vars(instance).setdefault(self._name, self._make(instance))
        return made


def called(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call ``function``, which is users' code, and return its result. If it raises an Exception, that is raised; if it
    raises anything else, such as SystemExit, `Exited` is raised instead.

    An interruption of the function is raised as it is: our own timeout, Ctrl-C, and, in a program that is not ours,
    whatever that program's signal handlers raise."""
    try:
        return function(*arguments, **named)
    except BaseException as error:
        known = readable(error)
        if known is error and (isinstance(error, Exception) or _is_interruption(type(error))):
            raise
        instead = known if isinstance(known, UnreadableError) else Exited(described(error))
        raise instead.with_traceback(sys.exc_info()[2]) from None  # which shows the place in the user's code


@contextmanager
def _having(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set ``variable`` to ``value`` within the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def answering() -> AbstractContextManager[None]:
    """Within the block `called` lets nothing that users' code raises end this thread, not even SystemExit."""
    return _having(whose, OURS)


def printing_on_stderr() -> AbstractContextManager[None]:
    """Wrap a command that prints data on standard output. Within it `users_output` redirects to standard error."""
    return _having(_printing_on_stderr, value=True)


def users_output() -> AbstractContextManager[object]:
    """Wrap an import or a call of users' code. Within `printing_on_stderr` its output goes to standard error."""
    # GUARD what users' code prints is not taken for a command's own output
    return redirect_stdout(sys.stderr) if _printing_on_stderr.get() else nullcontext()


@contextmanager
def refusing(what: str, name: str, who: str) -> Iterator[None]:
    """`answering` and `users_output` for the block. An exception of users' code becomes a ConfigurationError about
    ``what`` and its value ``name``, and says that ``who`` raised it. A PollConsumerError stays as it is."""
    with answering(), users_output():
        try:
            yield
        except PollConsumerError:
            raise
        except Exception as error:
            raise ConfigurationError(what, name, f"{who} raised {described(error)}") from None


def readable(error: BaseException) -> BaseException:
    """``error``; or, if its class raises when it is inspected, an `UnreadableError`."""
    try:
        if (error.__class__, error.__traceback__, error.__cause__) and type(type(error).__name__) is str:
            return error
    except TimeIsUp:
        raise
    except BaseException:  # GUARD an exception that cannot be looked at is replaced
        pass
    return UnreadableError("it is an exception whose own class raises")


def described(error: BaseException, most: int = MOST_CHARACTERS) -> str:
    """The type and the text of ``error``, cut to ``most`` characters, even if its class raises."""
    text, kind = text_of(error), type(readable(error)).__name__
    if not isinstance(readable(error), Exited | UnreadableError):
        text = f"{kind}: {text}" if text else kind
    return text if len(text) <= most else f"{text[: most - 1]}…"


def text_of(error: BaseException) -> str:
    """The text of ``error``, even if ``str`` raises."""
    try:
        return str(error)
    except BaseException as failure:
        return f"(its text raised {type(readable(failure)).__name__})"


def _is_interruption(kind: type[BaseException]) -> bool:
    """Whether an exception of this ``kind``, such as KeyboardInterrupt, comes from outside of the users' code."""
    if issubclass(kind, TimeIsUp) or whose.get() == OTHERS:
        return True
    by_person = issubclass(kind, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return by_person and whose.get() == OURS
