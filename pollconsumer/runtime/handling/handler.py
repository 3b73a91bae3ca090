"""Handlers: the function under a name, its options, and hooks around its calls, for logging and tracing.

An exception of a hook, unless it is Skip or of ``on_launch``, is logged, and has no other effect. A hook that exceeds
its timeout is stopped, if possible, and not called again in this process, so that not every message waits for it.

The outcome of a handler is its result, or its error, whose text is stored."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from functools import partial
from pathlib import Path
from traceback import format_exception
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MappingProxyType, TracebackType
from typing import Any, NamedTuple

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.json_values import explain
from pollconsumer.core.messages.codec import decoded_object
from pollconsumer.core.messages.message import Codec
from pollconsumer.core.messages.payloads import Malformed
from pollconsumer.core.retry import Backoff, ErrorPolicy, NotBegun, RetryPolicy, Skip
from pollconsumer.core.spans import DAY
from pollconsumer.core.users_code import Exited, UnreadableError, called, readable, text_of
from pollconsumer.runtime.handling.arguments import Arguments, BadArguments
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.new_messages import BeforeEnqueue, Defaults
from pollconsumer.runtime.system.signals import end_stray
from pollconsumer.runtime.system.system_limits import start_refused

_OURS = str(Path(__file__).parents[2] / "_")[:-1]
_NOT_THEIRS = (_OURS, str(Path(os.__file__).parent / "_")[:-1], "<")
"""Prefixes of the paths of our own code, and of the standard library."""
_INTERRUPTING = f'  File "{_OURS}runtime/handling/interrupts.py'
"""The beginning of a traceback's line for the frame that raised the interruption in a handler."""
_read_at = math.inf
"""When this process began to import the handlers' modules, in epoch seconds; infinite before."""
TRACE, LOCATION = "_pollconsumer_trace", "_pollconsumer_location"
"""Attributes of an exception that stands for one of another process: that exception's traceback and location."""
MAX_TRACE_CHARACTERS = 4000
MOST_OF_GROUP = 3
"""The number of errors of an exception group whose texts are shown in the group's text."""
_LAZY = frozenset({GeneratorType, map, filter})
_OF_JSON = frozenset({str, int, float, bool, dict, list, tuple})


class Outcome(NamedTuple):
    """A handler's return value, or the exception that it raised."""

    error: BaseException | None = None
    result: Any = None


class CallOutcomes(tuple[Outcome, ...]):
    """One outcome for each message in a call of a bulk handler, in the messages' order."""

    __slots__ = ()


def failed(error: BaseException) -> Outcome:
    """The outcome of a handler that raised ``error``."""
    return Outcome(readable(error))


DONE = Outcome()
"""The outcome of a handler that returned None, shared since most do."""


def returned(result: Any) -> Outcome:
    """The outcome of a handler that returned ``result``, which is not None."""
    if type(result) in _OF_JSON:
        return Outcome(None, result)
    try:
        return Outcome(None, done_result(result))
    except BaseException as error:
        return failed(error)


def done_result(result: Any) -> Any:
    """The result of a handler that returned ``result``. A finished future, of a call in another thread or process, is
    replaced by its return value, or raises its exception.

    Raises TypeError for a result whose work nobody does, such as a generator, an awaitable, or an unfinished future.
    Such a message was not handled, so it must not be completed."""
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
    """Stands in place of a result that the handler's process could not send. Its text says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def why_dropped(result: Any) -> str:
    """Why ``result`` cannot be encoded as JSON, and at which path within it."""
    if isinstance(result, Dropped):
        return result.reason
    try:
        explain(result, "result", "return what JSON has")
    except BaseException as error:  # raised by the user's classes, too
        return f"it is no JSON: {text_of(error)}"


def trace(error: BaseException, verdict: BaseException | None = None) -> str:
    """The end of the traceback of ``error``, without our own frames at its beginning, and without the frame that
    interrupts a handler. It notes each file that was changed after this process read it. ``verdict``: the error to
    store, if it is not ``error`` but was caused by it."""
    if (text := _from_other_process(error, TRACE)) is not None:
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
    return _escaped(text[-MAX_TRACE_CHARACTERS:])


def _from_other_process(error: BaseException, name: str) -> str | None:
    """The text in the attribute ``name``, `TRACE` or `LOCATION`, of ``error``; None if it has none. No code of the
    error's class runs."""
    text = object.__getattribute__(error, "__dict__").get(name)
    return text and _escaped(text)


def _escaped(text: str) -> str:
    """``text`` with lone surrogates escaped, so that it can be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()


def location(error: BaseException) -> str:
    """The last line of users' code in the traceback of ``error``, as ``shop/tasks.py:14``; empty if there is none. The
    path is relative to the file's directory in ``sys.path``."""
    if (given := _from_other_process(error, LOCATION)) is not None:
        return given
    frames = user_frames(error)
    if not frames:
        return location(error.__cause__) if error.__cause__ is not None else ""
    file = frames[-1].tb_frame.f_code.co_filename
    found = [f"{os.path.abspath(each)}{os.sep}" for each in sys.path]  # noqa: PTH100  as imports do
    below = max((len(each) for each in found if file.startswith(each)), default=0)
    return _escaped(f"{file[below:]}:{frames[-1].tb_lineno}")


def described_with_location(error: BaseException, most: int) -> str:
    """The text of ``error``, cut to ``most`` characters, with its `location`."""
    at = location(error)
    return f"{describe(error)[:most]} ({at})" if at else describe(error)[:most]


def user_frames(error: BaseException, *, installed: bool = True) -> list[TracebackType]:
    """Frames of users' code in the traceback, outermost first: not ours, the standard library's or installed packages'.
    If there are none and ``installed`` is True: packages' frames in the directory of the first such frame."""
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
    """Record that this process begins to import the handlers' modules now, for `_changed`."""
    global _read_at  # one for the process
    _read_at = time.time()


def _changed(file: str) -> bool:
    """Whether ``file`` was written after this process began to import handlers' modules. False without a file."""
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
    """The text of ``error``, as it is stored with the message. Lone surrogates and NUL characters are escaped, since a
    NUL separates text and traceback in the record."""
    text = text_of(error)
    if not isinstance(error, Malformed | BadArguments | Exited | UnreadableError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        text = f"{text}: {'; '.join(map(describe, map(readable, error.exceptions[:MOST_OF_GROUP])))}"
    return _escaped(text).replace("\0", "\\x00")


Run = Callable[[dict[str, Any], LaunchContext | None], Any]
MOST_CHARACTERS = 300
HOOK_TIMEOUT = 5.0
"""Seconds that one call of a hook may take."""
MAX_ATTEMPTS = 5
RESULT_TTL = DAY


def own_context(base: Context | None = None) -> Context:
    """A copy of ``base``, by default of the caller's context, in which one message is handled. The context of the
    module decimal is copied, too: ``getcontext().prec = 5`` would change the shared object."""
    context = copy_context() if base is None else base.copy()
    if (decimal := sys.modules.get("decimal")) is not None:
        kind = getattr(decimal, "Context", None)  # None while another thread imports it
        for value in context.values():
            if type(value) is kind:
                context.run(decimal.setcontext, value.copy())
                break
    return context


class Crashed(Exception):
    """The process died in the last attempt at the message, or in several attempts."""


def hook_timeout() -> float:
    return HOOK_TIMEOUT


def name_of(hook: object) -> str:
    return getattr(hook, "__qualname__", type(hook).__name__)


class Hooks:
    """The hooks of one application. ``warn`` is called with a line about a failed hook, and with its traceback."""

    def __init__(self, warn: Callable[[str, str], None]) -> None:
        self._warn = warn
        self.before: list[Callable[[LaunchContext], object]] = []
        self.after: list[Callable[[LaunchContext, Any], object]] = []
        self.on_failure: list[Callable[[LaunchContext, BaseException, float], object]] = []
        self.on_dead: list[Callable[[LaunchContext, BaseException], object]] = []
        self.on_expired: list[Callable[[LaunchContext], object]] = []
        self.before_enqueue: list[BeforeEnqueue] = []
        self.on_launch: list[Callable[[], object]] = []
        self.on_launch_end: list[Callable[[], object]] = []
        self._hung: set[object] = set()
        self._unreported: set[object] = set()
        """Ids of hooks that exceeded their timeout, and were not logged yet."""

    def __bool__(self) -> bool:
        """Whether there are hooks that concern messages: any but ``on_launch`` and ``on_launch_end``."""
        settled = self.on_failure or self.on_dead or self.on_expired
        return bool(self.before or self.after or settled or self.before_enqueue)

    def settled(self, kind: str, context_of: Callable[[], LaunchContext], *given: object) -> None:
        """Call the hooks after a settlement. ``kind`` and ``given``: on_failure, the error and the seconds until the
        next attempt; on_dead, the error; on_expired, nothing."""
        if getattr(self, kind):
            own_context().run(self.call, kind, context_of(), *given)

    def call(self, kind: str, *arguments: Any, within: Callable[[], float] = hook_timeout) -> bool:
        """Call the hooks of a ``kind``: before, after, on_failure, on_launch_end … Each may take ``within()`` seconds.
        Returns whether a ``before`` hook wants to skip the handler."""
        from pollconsumer.runtime.handling.interrupts import call_within

        pid, skips = os.getpid(), False
        for hook in getattr(self, kind):
            failure: BaseException | None = None
            seconds = within()
            if id(hook) not in self._hung:
                try:
                    call_within(seconds, called, hook, *arguments, when_stopped=partial(self._hang, hook))
                except BaseException as error:
                    if kind == "before" and isinstance(error, Skip):  # GUARD a hook says so
                        skips = True
                    else:
                        failure = error
                end_stray(pid, failure)
            if failure is not None:
                problem = described_with_location(failure, MOST_CHARACTERS)
                self._warn(f"hook {kind} {name_of(hook)} raised {problem}", trace(failure))
            if id(hook) in self._unreported:
                self._unreported.discard(id(hook))
                limit = f"did not end within {seconds:.2g}s"
                self._warn(f"hook {kind} {name_of(hook)} {limit}; it is not called again in this launch", "")
        return skips

    def _hang(self, hook: object) -> None:
        """Record that a hook exceeded its timeout. It is logged later, since the hook may hold the log's lock."""
        self._unreported.add(id(hook))
        self._hung.add(id(hook))


Around = Callable[[dict[str, Any], LaunchContext], tuple[dict[str, Any] | None, Callable[[Any], Any]]]
"""Called with a payload and its context: calls hooks ``before``, and begins the timeout. Returns the payload, or None
to skip the handler; and a function that takes the result, calls hooks ``after``, and returns the result."""


def hooked(handler: Handler, around: Around) -> Handler:
    """``handler`` with ``around`` called for each message. Hooks and handler share the message's context variables."""
    run: Any = handler.run

    def run_hooked(payload: dict[str, Any], context: LaunchContext | None) -> Any:
        assert context is not None
        given, end = around(payload, context)
        # GUARD what is skipped
        return end(None if given is None else done_result(run(given, context)))

    async def run_hooked_async(payload: dict[str, Any], context: LaunchContext | None) -> Any:
        assert context is not None
        given, end = around(payload, context)
        if handler.timeout is not None:
            from pollconsumer.runtime.handling.event_loop import restart_timeout

            restart_timeout()
        # GUARD what is skipped, awaited
        return end(None if given is None else done_result(await run(given, context)))

    return handler._replace(run=run_hooked_async if handler.asynchronous else run_hooked, takes_context=True)


def _around_one(
    hooks: Hooks, timeout: float | None, payload: dict[str, Any], context: LaunchContext
) -> tuple[dict[str, Any] | None, Callable[[Any], Any]]:
    """`Around` for a handler of one message."""
    skips = hooks.call("before", context)
    if timeout is not None:
        context.limit(timeout)

    def end(result: Any) -> Any:
        hooks.call("after", context, result)
        return result

    return None if skips else payload, end


def begin_launch(applications: Iterable[Hooks]) -> Callable[[Callable[[], float]], None]:
    """Call the applications' ``on_launch`` hooks. Returns a function that calls their ``on_launch_end`` hooks, given a
    function that returns how many seconds are left.

    If a hook fails, later ones are not called, the applications before it are ended, and ConfigurationError is
    raised."""
    begun: list[Hooks] = []

    def end(left: Callable[[], float]) -> None:
        while begun:
            begun.pop().call("on_launch_end", within=left)

    pid = os.getpid()
    for hooks in applications:
        for hook in hooks.on_launch:
            failure: BaseException | None = None
            try:
                called(hook)
            except BaseException as error:
                failure = error
            end_stray(pid, failure)
            if failure is not None:
                end(hook_timeout)
                problem = f"it raised {described_with_location(failure, MOST_CHARACTERS)}"
                refusal = ConfigurationError("on_launch", name_of(hook), problem)
                refusal.traced = trace(failure)
                raise refusal from failure
        begun.append(hooks)
    return end


class Bulk(NamedTuple):
    """The most messages in a call of a bulk handler, and for how many seconds a call waits for more."""

    most: int
    wait: float


class Handler(NamedTuple):
    """A handler: what its name and aliases stand for. ``run`` takes the payload and, if ``takes_context``, the context.
    It returns the result, or raises.

    ``result_ttl``: seconds for which a result is kept; 0 for none. ``at_most_once``: a message is recorded as begun
    before it is handled, and never tried again. ``timeout``: in seconds, or None. ``run`` enforces it, except for a
    coroutine or an ``isolated`` handler, which runs in a process that can be killed. ``timed`` makes this handler with
    another timeout. ``policies``: retry policies that a message may name. ``rate``, ``rate_key``, ``aliases``: see
    `Defaults`. ``holds_order``: messages wait behind a dead letter with their order key. ``bulk``: set for a bulk
    handler, whose ``run`` takes payload and context of a call, and returns its messages' outcomes: see `bulk.py`.
    ``codec``: the application's; ``run`` decodes payloads. ``limited``: its timeout is one window at most, since the
    message did not stop at a limit before."""

    name: str
    run: Run
    max_attempts: int = MAX_ATTEMPTS
    retry: RetryPolicy | ErrorPolicy = Backoff()
    fatal: tuple[type[BaseException], ...] = ()
    queue: str = "default"
    takes_context: bool = False
    takes_occurrence: bool = False
    timeout: float | None = None
    result_ttl: float = RESULT_TTL
    at_most_once: bool = False
    hooks: Hooks | None = None
    asynchronous: bool = False
    isolated: bool = False
    timed: Callable[[float | None], Handler] | None = None
    policies: Mapping[str, RetryPolicy | ErrorPolicy] = MappingProxyType({})
    rate: str | None = None
    rate_key: str | None = None
    holds_order: bool = False
    bulk: Bulk | None = None
    codec: Codec | None = None
    limited: bool = False
    aliases: Sequence[str] = ()

    @property
    def defaults(self) -> Defaults:
        """The default options of the handler's messages."""
        return Defaults(self.queue, self.rate, self.rate_key, self.aliases)

    def with_timeout(self, seconds: float | None) -> Handler:
        """The same handler with another timeout."""
        return self._replace(timeout=seconds) if self.timed is None else self.timed(seconds)

    def wrapped(self, wrap: Callable[[Handler], Handler]) -> Handler:
        """``wrap(self)``. If `with_timeout` makes a copy of that later, the copy is wrapped, too."""
        return wrap(self)._replace(timed=lambda seconds: self.with_timeout(seconds).wrapped(wrap))

    def handle(self, payload: dict[str, Any], context: LaunchContext | None = None) -> Outcome:
        """`handle_here` in a copy of the caller's context, so that no later message sees variables set by this one."""
        try:
            return own_context().run(self.handle_here, payload, context)
        except BaseException as error:  # a stop that comes just as it returns
            return failed(error)

    def handle_here(self, payload: dict[str, Any], context: LaunchContext | None) -> Outcome:
        """Handle a message in the caller's context. Returns its outcome; no exception of the handler is raised here."""
        try:
            result = self.run(payload, context) if self.timeout is None else self.begin(payload, context)
            if result is None:
                return DONE
            if self.asynchronous and isinstance(result, CoroutineType):
                return _on_loop(self, result)
            return returned(result)
        except BaseException as error:
            return failed(error)

    def begin(self, payload: dict[str, Any], context: LaunchContext | None) -> Any:
        """Start the handler's timeout, and call ``run``. Returns its result, or its coroutine if asynchronous."""
        if self.timeout is not None and context is not None:
            context.limit(self.timeout)
        return self.run(payload, context)


def _on_loop(handler: Handler, coroutine: Coroutine[Any, Any, Any]) -> Outcome:
    """Run ``coroutine`` on an event loop for this message alone. Used where the caller has no `EventLoop`."""
    from pollconsumer.runtime.handling.event_loop import EventLoop

    try:
        loop = EventLoop(thread=False)
    except BaseException as error:
        coroutine.close()
        if isinstance(error, OSError | MemoryError):
            raise NotBegun(start_refused(error)) from None
        raise
    try:
        return loop.handle(coroutine, handler)
    finally:
        loop.close()


def calling(function: Callable[..., Any], arguments: Arguments) -> Run:
    """The ``run`` of a handler that is a function with these ``arguments``."""
    if arguments.takes_context:
        return lambda payload, context: function(**arguments.bind(payload), context=context)
    return lambda payload, _: function(**arguments.bind(payload))


def decoding(run: Run, codec: Codec) -> Run:
    """``run`` for encoded payloads: the ``codec`` decodes each before the call."""
    return lambda payload, context: run(decoded_object(payload, codec), context)


def hooks_before_enqueue(handler: Handler | None) -> Sequence[BeforeEnqueue]:
    """The ``before_enqueue`` hooks of the handler's application, for messages that the handler enqueues."""
    return () if handler is None or handler.hooks is None else handler.hooks.before_enqueue


def aliases_among(handlers: Mapping[str, Handler]) -> dict[str, str]:
    """For each alias among the names of ``handlers``, the handler's own name."""
    return {name: handler.name for name, handler in handlers.items() if name != handler.name}


def with_hooks(handler: Handler, hooks: Hooks) -> Handler:
    """``handler`` with the ``hooks`` of its application around each call."""
    return handler.wrapped(lambda each: _with_hooks(each, hooks)) if hooks else handler


def _with_hooks(handler: Handler, hooks: Hooks) -> Handler:
    if hooks.before or hooks.after:
        around: Callable[..., Any] = _around_one
        if handler.bulk is not None:
            from pollconsumer.runtime.handling.bulk import around_bulk

            around = around_bulk
        handler = hooked(handler, partial(around, hooks, handler.timeout))
    return handler._replace(hooks=hooks)
