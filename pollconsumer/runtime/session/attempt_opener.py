"""Makes an attempt of a reserved message, or settles it, where there is none to be made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pollconsumer.core.messages.message import Options, decoded_options
from pollconsumer.core.messages.payloads import Malformed, decode_payload
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.core.retry import MOST_CRASHES, NotBegun
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.executors.executor import Attempt
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.hooks import Crashed
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.session.settlements import Settlements, resisted
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pollconsumer.runtime.launch.pings import Monitors


class AttemptOpener:
    def __init__(
        self,
        launch: Launch,
        handlers: Mapping[str, Handler],
        settling: Settlements,
        context_of: Callable[[Reservation], LaunchContext],
        settle: Callable[[], None],
        new_monitors: Callable[[], Monitors] | None,
    ) -> None:
        """``settle`` has the store settle what ``settling`` holds. Without ``new_monitors`` no monitor is told."""
        self._launch, self._stops, self._clock = launch, launch.progress.stops, launch.clock
        self._handlers, self._settling = handlers, settling
        self._context_of, self._settle = context_of, settle
        self._new_monitors = new_monitors

    def attempt(self, reservation: Reservation) -> Attempt | None:
        """The attempt at a message that is to be handled. None for a message that is to stop, has expired or is
        malformed, whose handler is unknown or paused, which a newer version wrote, or whose process died too often:
        that one is settled."""
        handler = self._handlers.get(reservation.handler)
        if (self._stops.paused or self._stops.any()) and self._turns_away(reservation):
            return None
        if reservation.expires and reservation.has_expired(self._clock()) and not self._took_steps(reservation):
            self._settling.expire(reservation, reservation.server_ms(self._clock()))
            self._call_hooks()
        elif handler is None:
            self._settling.park(reservation)
        else:
            try:
                if reservation.lot.sequel and _has_newer_sequel(reservation):
                    self._settling.set_aside(reservation)
                    return None
                if not reservation.options:
                    return self._opened(reservation, handler)
                if (with_options := self._with_options(handler, reservation)) is not None:
                    handler = with_options
                    return self._opened(reservation, handler)
                self._settling.set_aside(reservation)
            except NotBegun as error:
                self._settling.postpone(reservation, error)
            except (Crashed, Malformed) as error:
                self._settling.dead_letter(reservation, handler, error, reservation.server_ms(self._clock()))
                self._call_hooks()
        return None

    def _turns_away(self, reservation: Reservation) -> bool:
        """Settle a message that is to stop, or whose handler is paused."""
        if self._stops.asked(reservation):
            self._settling.stop_unstarted(reservation)
            return True
        if reservation.handler in self._stops.paused:  # GUARD a handler that is paused
            self._settling.park(reservation)
            return True
        return False

    def _took_steps(self, reservation: Reservation) -> bool:
        """Whether an earlier attempt took steps: from then on the message does not expire."""
        if not reservation.has_checkpoint:
            return False
        recorded = self._context_of(reservation).delivery.recorded
        return recorded is not None and len(recorded.steps) > 0

    def _opened(self, reservation: Reservation, handler: Handler) -> Attempt:
        """An attempt by ``handler``. NotBegun if the launch is too short for it by its declared timeout."""
        if self._launch.end.outlasts(handler.timeout, self._launch.window.length):
            timeout, window = (
                format_duration(handler.timeout or 0.0),
                format_duration(round(self._launch.window.length)),
            )
            raise NotBegun(
                f"timeout {timeout} is longer than the {window} of a launch by a URL: raise web.budget, start "
                "'pollconsumer run' by cron, or lower the timeout"
            )
        if reservation.crashes:
            handler = self._limited(handler, reservation)
        payload = decode_payload(reservation.payload)
        if not handler.takes_context:
            return Attempt(reservation, handler, payload)
        if self._settling.precedes(reservation):
            self._settle()
        return Attempt(reservation, handler, payload, self._context_of(reservation))

    def _limited(self, handler: Handler, reservation: Reservation) -> Handler:
        """``handler``, for one window at most if the message resisted its limit before and no timeout is declared.
        Crashed if the message's process died too often for another attempt."""
        store = self._launch.store
        stored = store.wire.command("HGET", store.keys.queue(reservation.queue, "errors"), reservation.id) or b""
        error, has_resisted = resisted(stored.decode("utf-8", "replace"))
        refuse_crashed(reservation, f"{error}; " if has_resisted else "")
        end = self._launch.end
        if not has_resisted or handler.timeout is not None:
            return handler
        limit = min(self._launch.window.length, end.limit(None))
        return handler.with_timeout(limit)._replace(limited=True)

    def _with_options(self, handler: Handler, reservation: Reservation) -> Handler | None:
        """``handler`` with the message's options; None if a newer version wrote any of them. NotBegun if its payload is
        encoded, and there is no codec."""
        options, newer = decoded_options(reservation.options)
        if newer:
            return None
        if options.encoded and handler.codec is None:  # GUARD an encoded payload needs a codec
            raise NotBegun("they are encoded, and PollConsumer() has no codec=")
        handler = overridden(handler, options)
        if options.ping is not None and self._new_monitors is not None:
            self._settling.monitors = self._settling.monitors or self._new_monitors()
            self._settling.monitors.begin(reservation, options.ping)
        return handler

    def _call_hooks(self) -> None:
        if self._settling.watched:
            self._settle()


def _has_newer_sequel(reservation: Reservation) -> bool:
    """Whether a newer version wrote the message's sequel. Malformed if it is corrupt."""
    from pollconsumer.core.messages.sequel import decoded  # few messages have one

    return decoded(reservation.lot.sequel)[1]


def refuse_crashed(reservation: Reservation, why: str) -> None:
    """Raise Crashed if the message's process died too often for another attempt; ``why`` it did the last time."""
    if reservation.spent:
        raise Crashed(f"{why}launch killed while running it, in its last attempt")
    if reservation.crashes >= MOST_CRASHES:
        raise Crashed(f"{why}launch killed {reservation.crashes} times while running it")


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
