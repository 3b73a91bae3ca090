"""The outcome of a handler: its result, or its error, and the text of errors."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import format_exception
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any, NamedTuple

from pollconsumer.core.json_values import explain
from pollconsumer.core.messages.payloads import Malformed
from pollconsumer.core.users_code import Exited, UnreadableError, readable, text_of
from pollconsumer.runtime.handling.arguments import BadArguments

_OURS = str(Path(__file__).parents[2] / "_")[:-1]
_NOT_THEIRS = (_OURS, str(Path(os.__file__).parent / "_")[:-1], "<")
"""Prefixes of the paths of our own code, and of the standard library."""
_INTERRUPTING = f'  File "{_OURS}runtime/handling/interrupts.py'
"""The beginning of a line in a traceback: the frame that interrupts a handler."""
_read_at = math.inf
"""When this process imported the handlers' modules, in epoch seconds; infinite before that."""
MAX_TRACE_CHARACTERS = 4000
MOST_OF_GROUP = 3
"""How many errors of an exception group appear in the group's text."""
_LAZY = frozenset({GeneratorType, map, filter})
_OF_JSON = frozenset({str, int, float, bool, dict, list, tuple})


class Outcome(NamedTuple):
    """A handler's return value or exception."""

    error: BaseException | None = None
    result: Any = None


class CallOutcomes(tuple[Outcome, ...]):
    """The outcomes of the messages in one call of a bulk handler, in their order."""

    __slots__ = ()


def failed(error: BaseException) -> Outcome:
    """The outcome of users' code that raised ``error``."""
    return Outcome(readable(error))


DONE = Outcome()
"""The outcome of a handler that returned None, as most do."""


def returned(result: Any) -> Outcome:
    """The outcome of a handler that returned ``result``, which is not None."""
    if type(result) in _OF_JSON:
        return Outcome(None, result)
    try:
        return Outcome(None, done_result(result))
    except BaseException as error:
        return failed(error)


def done_result(result: Any) -> Any:
    """``result``. If it stands for a finished call in another thread or process, the call's return value; raises what
    the call raised.

    TypeError for a result whose code nobody runs, such as a generator or an awaitable, and for one whose code still
    runs: a message that were completed with such a result would not have been handled.
    """
    kind = type(result)
    if kind in _LAZY or hasattr(kind, "__anext__"):
        raise TypeError(f"it returned {_a(kind)}, which nobody runs; loop over it in the handler")
    if isinstance(getattr(result, "gen", None), GeneratorType | AsyncGeneratorType):  # made by contextlib's decorators
        raise TypeError("it returned a context manager, which nobody enters; use it in a with statement")
    if hasattr(kind, "__await__"):
        if kind is CoroutineType:
            result.close()  # else the interpreter warns that it was never awaited
        raise TypeError(f"it returned {_a(kind)}; await it, in a handler declared with async def")
    if hasattr(kind, "add_done_callback"):  # a future, of concurrent.futures or the like
        return _from_elsewhere(kind, result.done, result.result)
    if kind.__module__ == "multiprocessing.pool" and hasattr(kind, "ready"):
        return _from_elsewhere(kind, result.ready, result.get)
    return result


def _from_elsewhere(kind: type, is_done: Callable[[], bool], value: Callable[[], Any]) -> Any:
    if not is_done():
        raise TypeError(f"it returned {_a(kind)} that is not done; return its .{value.__name__}()")
    return done_result(value())


def _a(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'aeiouAEIOU' else 'a'} {kind.__name__}"


class Dropped:
    """Stands for a result that another process could not send."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def why_dropped(result: Any) -> str:
    """Why the encoder refused ``result``, and where in it."""
    if isinstance(result, Dropped):
        return result.reason
    try:
        explain(result, "result", "return what JSON has")
    except BaseException as error:  # raised by the user's classes, too
        return f"it is no JSON: {text_of(error)}"


def trace(error: BaseException, verdict: BaseException | None = None) -> str:
    """The end of the traceback of ``error``, without our own frames at its beginning, and without the frame that
    interrupts a handler. A line is added for each file that changed after it was read. ``verdict``: our error whose
    cause ``error`` is."""
    text = getattr(error, "trace", None)  # raised in another process
    if isinstance(text, str):
        return text[-MAX_TRACE_CHARACTERS:]
    traced = error.__traceback__
    while traced is not None and traced.tb_frame.f_code.co_filename.startswith(_OURS):
        traced = traced.tb_next
    if traced is None:
        return trace(error.__cause__, verdict or error) if error.__cause__ is not None else ""
    if isinstance(error, Exception) or verdict is None:
        verdict = error  # the interruption itself says less than the verdict
    try:
        lines = format_exception(type(verdict), verdict, traced, chain=verdict is error)
        text = "".join(each for each in lines if not each.startswith(_INTERRUPTING))
    except BaseException:  # raised by the user's code
        return ""
    for file in dict.fromkeys(_file(each) for each in user_frames(error) if _changed(_file(each))):
        text += f"{file} was changed after this launch had read it, and ran as it was before\n"
    return text[-MAX_TRACE_CHARACTERS:].encode("utf-8", "backslashreplace").decode()


def location(error: BaseException) -> str:
    """The last line of the user's code in the traceback of ``error``, as ``shop/tasks.py:14``; empty if there is none.
    The path begins below the directory of ``sys.path`` in which the file was found."""
    given = getattr(error, "location", None)  # raised in another process
    if isinstance(given, str):
        return given
    frames = user_frames(error)
    if not frames:
        return location(error.__cause__) if error.__cause__ is not None else ""
    file = frames[-1].tb_frame.f_code.co_filename
    found = [f"{os.path.abspath(each)}{os.sep}" for each in sys.path]  # noqa: PTH100  as imports do
    below = max((len(each) for each in found if file.startswith(each)), default=0)
    return f"{file[below:]}:{frames[-1].tb_lineno}"


def described_with_location(error: BaseException, most: int) -> str:
    """The text of ``error`` in ``most`` characters, and its `location`."""
    at = location(error)
    return f"{describe(error)[:most]} ({at})" if at else describe(error)[:most]


def user_frames(error: BaseException, *, installed: bool = True) -> list[TracebackType]:
    """The frames of the user's code in the traceback of ``error``, outermost first. This code is neither ours, nor the
    standard library's, nor installed. If all code is ``installed``: the frames in the directory of the first one."""
    frames = [each for each in _frames(error.__traceback__) if not _file(each).startswith(_NOT_THEIRS)]
    own = [each for each in frames if "-packages" not in Path(_file(each)).parent.as_posix()]
    if own or not installed:
        return own
    return [each for each in frames if Path(_file(each)).parent == Path(_file(frames[0])).parent]


def _frames(traced: TracebackType | None) -> Iterator[TracebackType]:
    while traced is not None:
        yield traced
        traced = traced.tb_next


def _file(traced: TracebackType) -> str:
    return traced.tb_frame.f_code.co_filename


def begin_reading() -> None:
    """Record the time at which this process begins to import the handlers' modules."""
    global _read_at  # one for the process
    _read_at = time.time()


def _changed(file: str) -> bool:
    """Whether ``file`` was written after this process imported it. False for a name without a file, such as
    ``<stdin>``."""
    try:
        return Path(file).stat().st_mtime > _read_at
    except OSError:
        return False


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def describe(error: BaseException) -> str:
    """The text of ``error``, as it is stored with the message. Lone surrogates and NUL characters are escaped: in the
    record a NUL separates the text from the traceback."""
    text = text_of(error)
    if not isinstance(error, Malformed | BadArguments | Exited | UnreadableError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        text = f"{text}: {'; '.join(map(describe, map(readable, error.exceptions[:MOST_OF_GROUP])))}"
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
