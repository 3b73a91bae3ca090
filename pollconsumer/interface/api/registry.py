"""Handlers as applications register them: their options, and the process-wide registry of all applications.

Several modules may each have an application of their own."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dis import get_instructions
from functools import partial
from inspect import isasyncgenfunction, isclass, iscoroutinefunction, isgeneratorfunction, isroutine, signature, unwrap
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, Required, TypedDict, TypeVar, cast

from pollconsumer.core.choices import After, Missed, Overlap
from pollconsumer.core.errors import ConfigurationError, UsageError, retelling, unknown_options
from pollconsumer.core.messages.message import MOST_ATTEMPTS, Codec, check_handler, check_queue
from pollconsumer.core.retry import Backoff, ErrorPolicy, Pauses, RetryPolicy, sees_error
from pollconsumer.core.spans import Span, parse_duration, parse_rate
from pollconsumer.core.users_code import called
from pollconsumer.interface.settings.model import RecurrenceSettings, Settings
from pollconsumer.interface.settings.reading import check_recurrence
from pollconsumer.interface.settings.values import parse_timeout, parse_word
from pollconsumer.runtime.handling.arguments import Arguments
from pollconsumer.runtime.handling.bulk import BulkArguments, calling_bulk
from pollconsumer.runtime.handling.handler import MAX_ATTEMPTS, RESULT_TTL, Bulk, Handler, Hooks, calling, decoding
from pollconsumer.runtime.handling.interrupts import limited
from pollconsumer.store.queues.producer import Producer

V = TypeVar("V")
P = TypeVar("P")
_STEPPING = frozenset({"step", "step_async", "sleep", "wait_for", "call", "call_many"})
Retrying = RetryPolicy | ErrorPolicy | Sequence[Span]
"""The forms in which the delays between attempts can be given: a policy, or a list of delays."""
MOST_BULK = 500


class HandlerOptions(TypedDict, total=False):
    """How a handler's messages are handled.

    ``queue``: the default queue of its messages (``default``). ``max_attempts``: how often a message is tried (5).
    ``retry``: the delays between attempts, a policy or a list such as ``["10s", "1m"]``, whose last delay holds for all
    further attempts. ``fatal``: exceptions after which no attempt follows. ``timeout``: seconds, text such as ``30s``
    or a timedelta, after which the handler is stopped and the attempt fails. ``isolation="process"``: the handler runs
    in a separate process, which is killed at the timeout. ``result_ttl``: how long a result is kept (a day); 0 disables
    results. ``delivery="at_most_once"``: a message is never handled twice, so it becomes a dead letter if the handler
    fails or its process dies. ``rate``: the most messages that are handed out within a period, such as ``60/1h``.
    ``rate_key``: the name of an argument; ``rate`` then holds for each of its values. ``order_on_dead``: what a dead
    letter means for later messages with its ``order_key``. With ``"pass"`` (default) they are handled; with ``"hold"``
    they wait until the dead letter is redriven or purged. ``aliases``: earlier names; the handler handles messages
    with these names, too. ``upgrade(payload)``: called with a payload that does not fit the function, returns one that
    fits. Its exceptions count as the handler's."""

    queue: str
    max_attempts: int
    retry: Retrying | None
    fatal: type[BaseException] | tuple[type[BaseException], ...]
    timeout: Span | None
    isolation: Literal["none", "process"]
    result_ttl: Span
    delivery: Literal["at_least_once", "at_most_once"]
    rate: str | None
    rate_key: str | None
    order_on_dead: Literal["pass", "hold"]
    aliases: Sequence[str]
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] | None


class BulkOptions(HandlerOptions, total=False):
    """Options of a handler that is given several messages at a time.

    ``bulk``: how many messages at most, from 2 to 500. ``bulk_wait``: how long a call with fewer messages waits for
    more, in seconds, as text such as ``2s`` or as a timedelta. By default it does not wait."""

    bulk: Required[int]
    bulk_wait: Span


def check_options(options: HandlerOptions | BulkOptions) -> dict[str, Any]:
    """``options`` as fields of a `Handler`. ConfigurationError or BadData if one is invalid, TypeError if unknown."""
    known = BulkOptions.__annotations__.keys()
    if unknown := options.keys() - known:
        raise unknown_options(unknown, known)
    max_attempts = options.get("max_attempts", MAX_ATTEMPTS)
    if not isinstance(max_attempts, int) or isinstance(max_attempts, bool) or not 1 <= max_attempts <= MOST_ATTEMPTS:
        raise ConfigurationError("max_attempts", repr(max_attempts), f"a whole number from 1 to {MOST_ATTEMPTS}")
    fatal = options.get("fatal", ())
    fatal = (fatal,) if isinstance(fatal, type) else tuple(fatal)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in fatal):
        raise ConfigurationError("fatal", repr(fatal), "exception classes, as in (ValueError,)")
    words = {
        "isolation": ("none", "process"),
        "delivery": ("at_least_once", "at_most_once"),
        "order_on_dead": ("pass", "hold"),
    }
    for name, values in words.items():
        if options.get(name, values[0]) not in values:
            raise ConfigurationError(name, repr(options.get(name)), " or ".join(values))
    at_most_once, holds = options.get("delivery") == "at_most_once", options.get("order_on_dead") == "hold"
    if at_most_once and holds:
        fix = "a death of the launch, too, makes a dead letter then, which holds nobody: leave out one of them"
        raise ConfigurationError("order_on_dead", "'hold', with delivery at_most_once", fix)
    retry, timeout, result_ttl = options.get("retry"), options.get("timeout"), options.get("result_ttl", RESULT_TTL)
    if (rate := options.get("rate")) is not None:
        parsed("rate", rate, parse_rate)
    return {
        "queue": check_queue(options.get("queue", "default")),
        "max_attempts": 1 if at_most_once else max_attempts,
        "retry": Backoff() if retry is None else policy_of(retry),
        "fatal": fatal,
        "timeout": None if timeout is None else parsed("timeout", timeout, parse_timeout),
        "isolated": options.get("isolation") == "process",
        "result_ttl": parsed("result_ttl", result_ttl, parse_duration),
        "at_most_once": at_most_once,
        "rate": rate,
        "rate_key": options.get("rate_key"),
        "holds_order": holds,
        "bulk": _bulk(options.get("bulk"), options.get("bulk_wait")),
    }


def _bulk(most: object, wait: Any) -> Bulk | None:
    if most is None:
        if wait is not None:
            raise ConfigurationError(
                "bulk_wait", repr(wait), "give the greatest number of messages of a call, as bulk=200"
            )
        return None
    if not isinstance(most, int) or isinstance(most, bool) or not 2 <= most <= MOST_BULK:
        raise ConfigurationError("bulk", repr(most), f"a whole number from 2 to {MOST_BULK}")
    return Bulk(most, 0.0 if wait is None else parsed("bulk_wait", wait, parse_duration))


def policy_of(retry: Retrying) -> RetryPolicy | ErrorPolicy:
    """The retry policy that ``retry`` stands for. ConfigurationError if ``retry`` is invalid."""
    if isinstance(retry, list | tuple):
        with retelling((TypeError, ValueError), ConfigurationError):
            return Pauses(retry)
    if not _is_policy(retry):
        rule = (
            "a Backoff, as in Backoff(first='1s', most='10m'), delays such as ['10s', '1m'], or an object with a "
            "method delay(attempt, chance) or delay(attempt, chance, error)"
        )
        raise ConfigurationError("retry", repr(retry), rule)
    return cast("RetryPolicy | ErrorPolicy", retry)


def _is_policy(retry: object) -> bool:
    delay = getattr(retry, "delay", None)
    try:
        if not callable(delay) or is_asynchronous("retry", delay):
            return False
        signature(delay).bind(*(1, 0.5, ValueError())[: 3 if sees_error(delay) else 2])
    except (ConfigurationError, TypeError):
        return False
    except ValueError:  # it is not written in Python
        pass
    return True


def parsed(name: str, value: V, parse: Callable[[V], P]) -> P:
    """The ``value`` of the option ``name``, parsed. ConfigurationError if ``parse`` raises TypeError or ValueError."""
    try:
        return parse(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(name, repr(value), str(error)) from None


def location_of(function: Callable[..., Any]) -> str:
    """``FILE:LINE`` of ``function``, or its qualified name if that is unknown."""
    inner = unwrap(function)
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    if code is None:
        return f"{getattr(inner, '__module__', None)}.{getattr(inner, '__qualname__', type(inner).__qualname__)}"
    return f"{code.co_filename}:{code.co_firstlineno}"


def is_asynchronous(what: str, function: Callable[..., Any]) -> bool:
    """Whether a call of ``function`` returns a coroutine. ConfigurationError for a generator function: calling it runs
    none of its code. ``what``: its role, for the error."""
    while isinstance(function, partial):
        function = function.func
    called = function if isroutine(function) or isclass(function) else type(function).__call__
    if isgeneratorfunction(called) or isasyncgenfunction(called):
        name = getattr(called, "__qualname__", None)
        raise ConfigurationError(
            what, name, "it is a generator function, whose call runs nothing: use return, not yield"
        )
    return iscoroutinefunction(called)


def refuse_second(name: str, first: Callable[..., Any], second: Callable[..., Any]) -> NoReturn:
    """Raise the ConfigurationError for a ``name`` under which two handlers are registered."""
    if first is second:
        raise ConfigurationError(
            "handler registered twice", name, f"two decorators at {location_of(first)} register it: leave out one"
        )
    locations = location_of(first), location_of(second)
    modules = sorted({str(getattr(function, "__module__", None)) for function in (first, second)})
    if locations[0] == locations[1] and len(modules) == 2:
        fix = f"{locations[0]} was imported as {' and as '.join(modules)}; import it under one name"
    else:
        fix = f"at {locations[0]} and at {locations[1]}; give one of them another name"
    raise ConfigurationError("handler registered twice", name, fix)


def _converting(hint: Any) -> Callable[[Any], Any]:
    from pollconsumer.interface.api.conversion import converting

    return called(converting, hint)


def _dumping(hint: Any) -> Callable[[Any], Any]:
    from pollconsumer.interface.api.conversion import dumping

    return called(dumping, hint)


def _handler_of(name: str, function: Callable[..., Any], arguments: Arguments, checked: dict[str, Any]) -> Handler:
    """The `Handler` ``name``, which calls ``function``. ``checked``: its options."""
    if (argument := checked["rate_key"]) is not None and not arguments.takes(argument):
        raise ConfigurationError("rate_key", repr(argument), f"the handler {name} has no parameter of that name")
    if checked["at_most_once"] and arguments.takes_context and (seen := _step_seen(function)) is not None:
        fix = f"{seen} needs a second attempt, which at_most_once rules out: leave out delivery"
        raise UsageError("delivery", f"at_most_once of {name}", fix)
    asynchronous = is_asynchronous(f"handler {name}", function)
    if checked["bulk"] is None:
        run = calling(function, arguments)
        if checked["codec"] is not None:
            run = decoding(run, checked["codec"])
    else:
        run = calling_bulk(function, cast(BulkArguments, arguments), asynchronous=asynchronous)
    if checked["timeout"] is not None and not asynchronous and not checked["isolated"]:
        run = limited(run, checked["timeout"])
    return Handler(
        name,
        run,
        takes_context=arguments.takes_context,
        takes_occurrence=arguments.takes_occurrence,
        asynchronous=asynchronous,
        timed=lambda seconds: _handler_of(name, function, arguments, checked | {"timeout": seconds}),
        **checked,
    )


def recurrence_of(handler: Handler, missed: str, overlap: str, after: str, **given: Any) -> RecurrenceSettings:
    """The recurrence of a handler registered with ``every``. ConfigurationError for an invalid value."""
    name = handler.name
    with retelling(ValueError, ConfigurationError, f"recurrences.{name}: "):
        recurrence = RecurrenceSettings(
            handler=name,
            queue=handler.queue,
            missed=parse_word(Missed, "missed", missed),
            overlap=parse_word(Overlap, "overlap", overlap),
            after=parse_word(After, "after", after),
            **given,
        )
        check_recurrence(name, recurrence)
    return recurrence


def _step_seen(function: Callable[..., Any]) -> str | None:
    """The first method of ``context`` in the function's code that takes a step, as ``context.call``; else None."""
    code, loaded = getattr(unwrap(function), "__code__", None), False
    for instruction in get_instructions(code) if code is not None else ():
        if loaded and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and instruction.argval in _STEPPING:
            return f"context.{instruction.argval}"
        names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        loaded = instruction.opname.startswith("LOAD_") and names[-1] == "context"
    return None


class RegisteredHandler(NamedTuple):
    """A handler as its application has registered it. ``hooks``: those of that application."""

    definition: Handler
    function: Callable[..., Any]
    arguments: Arguments
    hooks: Hooks


class Application:
    """The registrations of a `PollConsumer`, and the ``location`` of its store."""

    hooks: Hooks
    codec: Codec | None
    location: tuple[object, str | None]

    def __init__(self) -> None:
        self.queues: set[str] = set()
        """Queues that launches serve in addition to the queues of the application's handlers."""
        self.handlers: dict[str, RegisteredHandler] = {}
        """Handlers by name, and by each alias."""
        self.recurring: dict[str, RecurrenceSettings] = {}
        """The recurrences registered with `every`, by name."""
        self.retry_policies: dict[str, RetryPolicy | ErrorPolicy] = {}
        """Retry policies, by the name that a message gives as ``retry``."""

    def own_config(self) -> Path | None:
        """The configuration file that the application reads outside of commands. None if there is none."""
        raise NotImplementedError

    def registering(
        self, name: str | None, options: HandlerOptions | BulkOptions
    ) -> Callable[[Any], RegisteredHandler]:
        """A decorator that registers a function as the handler ``name``, by default under the function's name. This
        method and the decorator raise ConfigurationError for an invalid handler, BadData for an invalid name."""
        checked, aliases, upgrade = check_options(options), options.get("aliases", ()), options.get("upgrade")
        if not isinstance(aliases, list | tuple) or len(set(map(str, aliases))) < len(aliases):
            raise ConfigurationError("aliases", repr(aliases), 'a list of different names, as ["send_mail"]')
        aliases = tuple(map(check_handler, aliases))
        if upgrade is not None and (not callable(upgrade) or is_asynchronous("upgrade", upgrade)):
            raise ConfigurationError(
                "upgrade", repr(upgrade), "a function of a payload that returns a payload, not async"
            )

        def register(function: Any) -> RegisteredHandler:
            if not callable(function):
                fix = "give a function; a method of a class once that is defined, as in app.handler(Mail.send)"
                raise ConfigurationError("handler", f"a {type(function).__name__}", fix)
            chosen = check_handler(name or getattr(function, "__name__", None))
            for each in (chosen, *aliases):
                if each in self.handlers:
                    refuse_second(each, self.handlers[each].function, function)
            if checked["bulk"] is not None:
                arguments: Arguments = BulkArguments(function, _converting, _dumping, upgrade, self.codec)
            else:
                arguments = Arguments(function, _converting, _dumping, upgrade)
            own = {"policies": self.retry_policies, "codec": self.codec, "aliases": aliases}
            definition = _handler_of(chosen, function, arguments, checked | own)
            registered = RegisteredHandler(definition, function, arguments, self.hooks)
            self.handlers |= dict.fromkeys((chosen, *aliases), registered)
            return registered

        return register


class StandIn(Protocol):
    """Replaces the stores of all applications in tests."""

    def store_of(self, app: object) -> Producer: ...

    def pause(self, seconds: float) -> None:
        """Wait between two reads of what a caller waits for."""


class Registry:
    def __init__(self) -> None:
        self.apps: list[Application] = []
        self.settings: Settings | None = None
        """The settings of the importing command. Applications without ``store`` and ``namespace`` use them, too."""
        self.imported: Collection[str] | None = None
        """Names of all handlers and programs of ``settings``. None before the modules are imported, or if ``settings``
        name neither modules nor programs."""
        self.stand_in: StandIn | None = None

    def add(self, *apps: Application) -> None:
        self.apps += [app for app in apps if app not in self.apps]

    def handlers(self) -> dict[str, RegisteredHandler]:
        """The handlers of all applications, by name. ConfigurationError if two handlers have the same name."""
        found: dict[str, RegisteredHandler] = {}
        for app in self.apps:
            for name, registered in app.handlers.items():
                if name in found:
                    refuse_second(name, found[name].function, registered.function)
                found[name] = registered
        return found

    def known(self, handler: str, location: tuple[object, str | None]) -> RegisteredHandler | None:
        """The handler of that name, of an application in this process whose store is at ``location``; else None."""
        apps = (app for app in self.apps if handler in app.handlers and app.location == location)
        return next((app.handlers[handler] for app in apps), None)

    def other_configs(self, settings: Settings) -> list[Path]:
        """Configurations that applications of this process read outside of commands, other than that of
        ``settings``."""
        found = {app.own_config() for app in self.apps if not any(app.location)}
        here = settings.config
        return sorted(each for each in found if each is not None and (here is None or not each.samefile(here)))

    def queues(self) -> set[str]:
        return {queue for app in self.apps for queue in app.queues}

    def recurrences(self) -> dict[str, RecurrenceSettings]:
        return {name: recurrence for app in self.apps for name, recurrence in app.recurring.items()}

    @contextmanager
    def afresh(
        self, apps: Iterable[Application] = (), settings: Settings | None = None, stand_in: StandIn | None = None
    ) -> Iterator[None]:
        """Within the block only ``apps`` are registered, with these settings. Then the registry is as before."""
        before = vars(self).copy()
        self.apps, self.settings, self.imported, self.stand_in = list(apps), settings, None, stand_in
        try:
            yield
        finally:
            vars(self).update(before)


registry = Registry()
