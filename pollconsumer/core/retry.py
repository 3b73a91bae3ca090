"""Retries: the exceptions by which an attempt can end, and the delay before the next attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, NamedTuple, Protocol, TypeGuard

from pollconsumer.core.errors import BadData
from pollconsumer.core.spans import DAY, Span, format_duration, parse_duration, seconds_in
from pollconsumer.core.users_code import called

MOST_CRASHES = 3
"""If the process that handles a message dies so often, the message becomes a dead letter."""
STOP_GRACE = 5.0
"""Seconds that a handler has to end by itself after a request to stop its message."""


class Fatal(Exception):
    """Raised by a handler: no further attempt can help. The message becomes a dead letter at once."""


LONGEST_DEFERRAL, SHORTEST_DEFERRAL = 7 * DAY, 1.0
"""How long after its due time a message may be deferred without a charge, and the shortest such delay, in seconds."""


class RetryIn(Exception):
    """Raised by a handler: try again after ``delay``: seconds, text such as ``5m``, or a timedelta. With
    ``charged=False`` this attempt is not counted, and is no failure. A message can be deferred in this way for a week
    after its due time, or its last step or signal; then it becomes a dead letter."""

    seconds: float
    charged: bool = True

    def __init__(self, delay: Span, *, charged: bool = True) -> None:
        self.seconds, self.charged = seconds_in("RetryIn", delay), charged
        super().__init__(f"retry in {delay}" if charged else f"deferred by {delay}")


def is_deferred(error: BaseException) -> TypeGuard[RetryIn]:
    """Whether ``error`` is a RetryIn with ``charged=False``."""
    return isinstance(error, RetryIn) and not error.charged


class Partial(Exception):
    """Raised by a bulk handler: some messages failed. ``errors`` maps their positions in the handler's list, from 0, to
    exceptions. The others are completed. TypeError for anything but a mapping of positions to exceptions."""

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        self.errors = dict(errors)
        for position, error in self.errors.items():
            if not isinstance(position, int) or isinstance(position, bool) or position < 0:
                raise TypeError(f"Partial: {position!r} is no position in the list of messages; the first one is 0")
            if not isinstance(error, Exception):
                raise TypeError(f"Partial: message {position} has a {type(error).__name__}; give an exception")
        super().__init__(f"{len(self.errors)} messages failed")


class Skip(Exception):
    """Raised by a hook ``before``: the message is completed without a result, and its handler is not called."""


class Yield(Exception):
    """Raised by a handler: the next launch shall handle the message again. No attempt is charged."""


class Asleep(BaseException):
    """Raised in a handler by ``context.sleep`` and ``context.wait_for``: the message leaves its slot until ``until``,
    in epoch ms, or until a signal comes. No attempt is charged. Not an Exception, so that ``except Exception`` does not
    catch it."""

    def __init__(self, until: int) -> None:
        self.until = until
        super().__init__("asleep")


class HandlerTimeout(TimeoutError):
    """The handler exceeded its limit of ``seconds`` and was stopped. Its message is retried as after any failure."""

    seconds: float

    def __init__(self, seconds: float, origin: str = "from timeout= or consumer.handler_limit") -> None:
        self.seconds = seconds
        super().__init__(f"ran longer than its limit of {format_duration(seconds)}, {origin}")


class Stopped(Exception):
    """The message was stopped on request, and its handler was interrupted."""

    def __init__(self, returned: str = "") -> None:
        super().__init__(f"stopped on request: {returned}" if returned else "stopped on request")


class ProcessDied(Exception):
    """The process of an isolated handler died; the text says how."""


class NotBegun(Exception):
    """The handler could not be started; the text says why. No attempt is charged."""


class CallDied(NotBegun):
    """The process of a bulk call died, or the call was stopped at its timeout. It is unknown which of its messages
    caused that. Each is charged a death, and none an attempt. From then on each is handled in a call of its own."""


class RetryPolicy(Protocol):
    """The delays before a handler's further attempts: a `Backoff`, or an object of the user's. An object whose
    ``delay`` has a third parameter ``error``, for the exception that ended the attempt, is an `ErrorPolicy`."""

    def delay(self, attempt: int, chance: float, /) -> Span:
        """The time from the failed attempt number ``attempt`` (from 1) to the next one: seconds, text such as ``5m`` or
        a timedelta. ``chance``: a random number in [0, 1)."""


class ErrorPolicy(Protocol):
    """A `RetryPolicy` whose ``delay`` has a third parameter ``error``: the error that ended the attempt."""

    def delay(self, attempt: int, chance: float, error: BaseException, /) -> Span:
        """See `RetryPolicy.delay`. ``error``: the exception that ended the attempt."""


class Backoff:
    """Exponential delays before further attempts: ``first``, then ``factor`` times as long each time, at most ``most``.

    ``first`` and ``most`` are seconds, text such as ``10m`` or timedeltas; ``jitter`` is the random share of each
    delay. ValueError for an invalid backoff."""

    __slots__ = ("factor", "first", "jitter", "most")

    def __init__(self, first: Span = "1s", factor: float = 2, most: Span = "10m", jitter: float = 0.5) -> None:
        self.first, self.factor = seconds_in("backoff: first", first), float(factor)
        self.most, self.jitter = seconds_in("backoff: most", most), float(jitter)
        if self.first > self.most:
            raise ValueError(f"backoff: first {first} is above most {most}; swap them")
        if not self.factor >= 1:
            raise ValueError(f"backoff: factor {factor} must be 1 or more")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"backoff: jitter {jitter} must be between 0 and 1")

    def delay(self, attempt: int, chance: float) -> float:
        """Seconds from the failed attempt number ``attempt`` (from 1) to the next one. ``chance``: random, in [0, 1).

        Jitter spreads retries that have a common cause. It only shortens a delay, to (1 - jitter) times its length at
        least (Brooker, "Exponential Backoff and Jitter", 2015)."""
        try:
            base_delay = min(self.most, self.first * self.factor ** (attempt - 1))
        except OverflowError:
            base_delay = self.most
        return base_delay * (1 - self.jitter * chance)


class Pauses:
    """The delays of ``retry=["10s", "1m"]``: one before each further attempt. The last delay is repeated."""

    __slots__ = ("_seconds",)

    def __init__(self, pauses: Sequence[Span]) -> None:
        """Raise BadData for an invalid delay or an empty list, TypeError for another type."""
        self._seconds = [seconds_in(f"retry[{at}]", pause) for at, pause in enumerate(pauses)]
        if not self._seconds:
            raise BadData("retry", "[]", "give one delay at least")

    def delay(self, attempt: int, _: float, /) -> float:
        """Seconds from the failed attempt number ``attempt`` (from 1) to the next one."""
        return self._seconds[min(attempt, len(self._seconds)) - 1]


class Retry(NamedTuple):
    """The ``delay`` before another attempt. ``problem``: why the handler's policy failed; None if it did not."""

    delay: float
    problem: BaseException | None = None
    charged: bool = True


def after_failure(
    error: BaseException,
    attempt: int,
    *,
    max_attempts: int,
    policy: RetryPolicy | ErrorPolicy,
    fatal: tuple[type[BaseException], ...],
    chance: float,
    since_due: float | None = None,
) -> Retry | None:
    """The next attempt after attempt number ``attempt`` (from 1) ended with ``error``; None if none is left or can
    help, or after a week of deferrals. ``since_due``: seconds since the due time, or since the
    last step or signal if that is later; None if each attempt is charged."""
    if is_fatal(error, fatal):
        return None
    if since_due is not None and is_deferred(error):  # GUARD what is deferred costs no attempt
        delay = max(SHORTEST_DEFERRAL, error.seconds)  # GUARD the shortest deferral
        # GUARD deferred for a week at most
        return Retry(delay, charged=False) if since_due + delay <= LONGEST_DEFERRAL else None
    if attempt >= max_attempts:
        return None
    if isinstance(error, RetryIn):
        return Retry(error.seconds)
    try:
        delay_of: Any = policy.delay
        returned = called(delay_of, *((attempt, chance, error) if sees_error(delay_of) else (attempt, chance)))
        try:
            return Retry(parse_duration(returned))
        except (TypeError, ValueError):
            raise ValueError(f"its delay is {returned!r}, which is no duration") from None
    except BaseException as problem:  # raised by the user's policy
        return Retry(Backoff().delay(attempt, chance), problem)


def is_fatal(error: BaseException, fatal: tuple[type[BaseException], ...]) -> bool:
    """Whether no attempt can help after ``error``: it is Fatal, or of one of the handler's ``fatal`` classes. False if
    the check of a class raises."""
    try:
        return isinstance(error, (Fatal, *fatal))
    except BaseException:
        return False


def sees_error(delay: Callable[..., object]) -> bool:
    """Whether the policy's method ``delay`` has a parameter ``error``."""
    try:
        return "error" in signature(delay).parameters
    except ValueError:  # it is not written in Python
        return False
