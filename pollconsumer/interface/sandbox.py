"""The sandbox: a test enqueues messages as usual, runs launches, and advances time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from math import inf
from mmap import mmap
from pathlib import Path
from signal import SIGTERM
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, NamedTuple, cast

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.events import Event
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.codec import readable_value
from pollconsumer.core.notation.instants import ceil_ms
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.core.retry import Asleep, Fatal, RetryIn, Yield, is_fatal
from pollconsumer.core.spans import Span, seconds_in
from pollconsumer.core.window import StopReason
from pollconsumer.interface.api.app import PollConsumer, calls_of
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.assembly.handlers import load_handlers, load_recurrences
from pollconsumer.interface.assembly.launch_roles import MOVER, consumer_options, mover_options, served_queues
from pollconsumer.interface.configured_store import most_ready
from pollconsumer.interface.logs.event_log import listener
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.memory_store import MemoryOpener, VirtualClock
from pollconsumer.interface.settings.load import read_settings
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.children.command import Programs
from pollconsumer.runtime.consumer import consume, define
from pollconsumer.runtime.handling.arguments import BadArguments
from pollconsumer.runtime.handling.executors import Executor, Handled
from pollconsumer.runtime.handling.handler import Handler, begin_launch, hook_timeout
from pollconsumer.runtime.launch.board import Stops
from pollconsumer.runtime.launch.launch import Attendance, Host, Launch, LaunchPlan, Work
from pollconsumer.runtime.mover import Mover, MoverOptions
from pollconsumer.runtime.new_messages import due_ms
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.runtime.system.signals import StopRequest
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records.reservations import Claim, Reservation
from pollconsumer.store.server import service_of

FORESEEN = (Asleep, Fatal, RetryIn, Yield)
ENDS_A_HANDLER = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError, Asleep)
"""Exceptions that end only the handler. Others (Ctrl-C, pytest's outcomes) are raised in the test."""
FOREVER = 1e12
CONSUMER = Group("consumer", (), 1)


class SandboxHost(Host):
    """The test's process as a launch's host. Its clocks are virtual, and it outlives its launches."""

    def __init__(self, clock: VirtualClock) -> None:
        self.stop, self._clock = StopRequest(), clock

    def monotonic(self) -> float:
        return self._clock()

    started_at = boot_time = monotonic

    def chance(self) -> float:
        return 0.0

    def catch_signals(self) -> StopRequest:
        return self.stop

    def processes(self, _: int) -> dict[str, Any]:
        return {"host": "testing", "pid": 0}


class SandboxLaunch(Launch):
    """A launch that has the lease at once, in virtual time."""

    def __init__(
        self, opener: MemoryOpener, group: Group, plan: LaunchPlan, clock: VirtualClock, emit: Callable[[Event], None]
    ) -> None:
        host = SandboxHost(clock)
        super().__init__(plan._replace(min_margin=0.0), cast("StoreOpener", opener), emit, host)
        self._stop, self.store = host.stop, opener.store()
        self.progress.stops = SandboxStops(self.store)
        self.leases = Leases(self.store.wire, opener.namespace)
        self.progress.facts = self._facts(group, 0)
        claim = self.leases.acquire(group, self.id, self.progress.description(), self.progress.entry(None, 0.0))
        assert isinstance(claim, Claim), "one launch at a time"
        # No heartbeat renews it, so it lasts: however long a handler takes, its message is not handled a second time
        # meanwhile.
        self.store.wire.command("PEXPIRE", self.store.keys.control(f"lease:{claim.lease_name}"), int(FOREVER))
        self.claim, self.attendance = claim, Attendance(claim.at, clock())
        self.progress.trust_until(inf)

    def stop(self) -> None:
        self._stop.signal = SIGTERM

    def run(self, work: Work) -> StopReason:
        """Do the work, then release the lease."""
        reason = StopReason.FAILED
        try:
            reason = work(self)
        finally:
            self.leases.release(self.claim, self.progress.entry(None, 0.0))
            self._report_end(self.claim.role, reason, self.clock() - self.window.start, 0)
            self.store.wire.close()
        return reason


class SandboxStops(Stops):
    """Requests to stop messages, read from the store in memory: a sandbox has no heartbeat."""

    def __init__(self, store: RedisStore) -> None:
        super().__init__(mmap(-1, self.SIZE), 0)
        self._store = store

    def any(self) -> bool:
        return bool(self.pending())

    def asked(self, reservation: Reservation) -> bool:
        key = self._store.keys.queue(reservation.queue, "stops")
        return bool(self._store.wire.command("HEXISTS", key, reservation.id))

    def pending(self) -> set[tuple[str, bytes]]:
        keys = {queue: self._store.keys.queue(queue, "stops") for queue in self._store.queues()}
        return {(queue, each) for queue, key in keys.items() for each in self._store.wire.command("HGETALL", key)[::2]}


class WatchedExecutor(Executor):
    """Handles messages. If a handler raises an exception that the test should see, the launch ends, and the exception
    is kept in ``raised``."""

    def __init__(self, launch: SandboxLaunch, *, raising: bool) -> None:
        super().__init__(launch.clock)
        self.raised: BaseException | None = None
        self._launch, self._raising = launch, raising

    def finished(self) -> list[Handled]:
        finished = super().finished()
        for handled in finished:
            several = handled.outcome.result if handled.attempt.handler.bulk is not None else None
            for outcome in [handled.outcome] if several is None else several:
                if self._is_meant_for_the_test(outcome.error, handled.attempt.handler):
                    self.raised = outcome.error
                    self._launch.stop()
        return finished

    def _is_meant_for_the_test(self, error: BaseException | None, handler: Handler) -> bool:
        if error is None or not isinstance(error, ENDS_A_HANDLER):
            return error is not None
        foreseen = isinstance(error, FORESEEN) or is_fatal(error, handler.fatal)
        return self._raising and (not foreseen or isinstance(error, BadArguments))


class SandboxMover:
    def __init__(
        self, opener: MemoryOpener, clock: VirtualClock, emit: Callable[[Event], None], options: MoverOptions
    ) -> None:
        moving = SandboxLaunch(opener, MOVER, LaunchPlan(FOREVER, 0.0), clock, emit)
        self._mover, self._store, self._clock = Mover(moving, options), moving.store, clock

    def tick(self) -> float:
        """Do all that is due now. Returns the seconds until the mover or a launch has more to do, or inf."""
        while True:
            self._mover.look_afresh()
            more_in = [*self._more_in()]
            moved, next_due = self._mover.promote()
            self._mover.maintain()
            if not moved and 0 not in more_in:
                return min([*more_in, next_due])

    def _more_in(self) -> Iterator[float]:
        """Yield the seconds until something other than a message or recurrence is due: 0 for entries of an outbox, and
        the times until instants of batches and ends of pauses. It also marks all queues as served, so that the mover
        leaves the expiry of messages to launches."""
        keys, now = self._store.keys, self._clock.now_ms
        for queue in self._mover.queues():
            outbox, pause, batches, _ = self._store.wire.all(
                [
                    ("EXISTS", keys.queue(queue, "outbox")),
                    ("GET", keys.queue(queue, "paused")),
                    ("ZRANGE", keys.queue(queue, "batch_instants"), 0, 0, "WITHSCORES"),
                    ("SET", keys.queue(queue, "served"), 1),
                ]
            )
            yield from [0.0] * outbox
            yield from (max(0.0, float(at) - now) / 1000 for at in batches[1:] if float(at) < inf)
            # A key outlives its expiry by a millisecond.
            yield from ((int(end) + 1 - now) / 1000 for end in (pause or b"").split()[1:])


class Launched(NamedTuple):
    """The outcome of one or more launches: messages completed, attempts failed, messages released.

    ``stop_reason``: why the last launch ended; None without a launch."""

    handled: int = 0
    failed: int = 0
    released: int = 0
    stop_reason: StopReason | None = None

    def and_then(self, later: Launched) -> Launched:
        """The sum of these outcomes and the outcomes of ``later`` launches."""
        handled, failed = self.handled + later.handled, self.failed + later.failed
        return Launched(handled, failed, self.released + later.released, later.stop_reason)


class Sandbox:
    """Applications under test, on a store in memory and in virtual time. Use it in a ``with`` statement.

    ``apps`` provide handlers and recurrences; by default all applications of the process do. Within the block no
    application of the process reaches its own store. Time begins at ``start`` (default: now), and passes only in
    ``advance``, ``advance_to``, ``run_for``, and while a launch waits. ``config``: a configuration file; the
    environment, except POLLCONSUMER_TRUST_WRITABLE, and other files are ignored."""

    def __init__(self, *apps: PollConsumer, start: datetime | None = None, config: str | Path | None = None) -> None:
        """Raise TypeError for a naive ``start``, ConfigurationError for an invalid ``config``."""
        if start is not None:
            due_ms(start)
        self._apps = list(map(calls_of, apps))
        self._settings = Settings() if config is None else read_settings(Path(config))
        self._configured = config is not None
        self._clock = VirtualClock(datetime.now(UTC) if start is None else start)
        self._opener = MemoryOpener(self._settings.namespace, self._clock)
        self._store = self._opener.store()
        self._inspector = Inspector(self._opener.wire(), self._opener.namespace)
        self._producers: dict[int, Producer] = {}
        self._listen = listener()
        self._until_left = ExitStack()
        self._state = "new"
        self._launching = False
        self._programs: Programs | None = None

    def __enter__(self) -> Sandbox:
        if self._state != "new" or registry.stand_in is not None:
            raise RuntimeError(
                "a sandbox is entered once, and not within another one: leave that, then make a new Sandbox"
            )
        self._state = "entered"
        self._path = list(sys.path)
        self._until_left.enter_context(registry.afresh(self._apps or registry.apps, self._settings, self))
        try:
            if self._settings.commands:  # their notes must not mix with those for the real store
                notes = self._until_left.enter_context(TemporaryDirectory())
                self._programs = Programs(Path(notes), log.warning)
            mover = SandboxMover(self._opener, self._clock, self._listen, mover_options(self._settings))
            self._clock.tick = mover.tick
            self._prepare()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    @property
    def now(self) -> datetime:
        """The virtual time, in UTC."""
        return self._clock.now()

    def advance(self, span: Span) -> None:
        """Advance time by text such as ``1h30m``, seconds, or a timedelta.

        Messages and occurrences that come due become ready at their instants, but none is handled. A handler may call
        this to take time."""
        self._advance_to(self._clock.now_ms + _milliseconds(span))

    def advance_to(self, instant: datetime) -> None:
        """Advance time to ``instant``, an aware datetime. ValueError if it is in the past."""
        if due_ms(instant) < self._clock.now_ms:
            raise ValueError(f"{instant.isoformat()} is past: it is {self.now.isoformat()}")
        self._advance_to(due_ms(instant))

    def run(self, *, until_empty: bool = True, max_messages: int | None = None, raising: bool = False) -> Launched:
        """Run one launch: it makes due messages ready, and handles what is ready. ``max_messages``: at most so many.

        Without ``until_empty`` the launch uses its whole window, waits, and handles what comes due. With ``raising``
        the launch ends with the first unexpected exception of a handler, which is raised here, while the message is
        retried as usual. Fatal, RetryIn, Yield, and ``fatal`` exceptions are expected, except for bad arguments."""
        self._prepare()
        self._clock.next_due()
        timeout = self._settings.consumer.timeout
        return self._launch(timeout, until_empty=until_empty, max_messages=max_messages, raising=raising)

    def run_for(self, span: Span, *, every: Span = "1m", raising: bool = False) -> Launched:
        """Advance time by ``span``, with a mover, and with a launch now and after each ``every``, as under cron.

        Launches that would find nothing are skipped. Returns the sums over all launches."""
        handlers, _ = self._prepare()
        at = self._clock.now_ms
        end, period = at + _milliseconds(span), max(1, _milliseconds(every, "every"))
        timeout = min(self._settings.consumer.timeout, period / 1000)
        total = Launched()
        while at <= end:
            self._clock.pass_until(at)
            if not self._anything_ready(self._served(handlers)):
                due = self._clock.next_due()
                if due is None or due > end:
                    break
                if (empty := (due - at) // period) > 0:
                    at += empty * period
                    continue
            launched = self._launch(timeout, raising=raising, end=end)
            total = total.and_then(launched)
            at += max(1, -((at - self._clock.now_ms) // period)) * period
        self._clock.pass_until(end)
        return total

    def message(self, message: Handle[Any] | str) -> Message:
        """The message, given by its handle or id. NotFound if there is none."""
        if isinstance(message, Handle):
            return _decoded(self._inspector.message(message.id, message.queue))
        return _decoded(self._inspector.message(message))

    def messages(
        self, state: State | str | None = None, *, handler: str | None = None, queue: str | None = None
    ) -> list[Message]:
        """Messages, all or those in ``state`` (scheduled, ready, reserved, completed, dead, cancelled, expired), of
        ``handler`` and in ``queue``. By queue and state; those that entered their state first come first."""
        wanted = None if state is None else State(state)
        if queue is not None and queue not in self._inspector.queues():
            return []
        found = self._inspector.messages(wanted, queue, sys.maxsize)
        return [_decoded(message) for message in found if handler is None or message.handler == handler]

    def store_of(self, app: object) -> Producer:
        """The store that ``app`` uses in place of its own. ``PollConsumer`` calls this."""
        producer = self._producers.get(id(app))
        if producer is None:
            producer = self._producers[id(app)] = self._opener.store().producer
            producer.most_ready = most_ready(self._settings)
        return producer

    def pause(self, _: float) -> None:
        """Raise TimeoutError where ``Handle.wait`` would wait."""
        raise TimeoutError(
            "the message has not ended, and no launch runs while a test waits: call sandbox.run() before"
        )

    def _leave(self) -> None:
        self._state = "left"
        if self._settings.handlers:
            sys.path[:] = self._path
        apps = registry.apps
        self._opener.close()
        self._until_left.close()
        registry.add(*apps)

    def _prepare(self) -> tuple[dict[str, Handler], list[Recurrence]]:
        """The handlers and recurrences of a launch."""
        if self._state != "entered":
            raise RuntimeError("use the sandbox in a with statement")
        handlers = load_handlers(self._settings, self._programs)
        recurrences = load_recurrences(self._settings, handlers)
        define(self._store, CONSUMER.name, recurrences, self._listen)
        return handlers, recurrences

    def _launch(
        self,
        timeout: float,
        *,
        raising: bool,
        until_empty: bool = False,
        max_messages: int | None = None,
        end: int | None = None,
    ) -> Launched:
        """Run one launch. With an ``end`` it waits at most until that instant, and only while something can happen."""
        if self._launching:
            raise RuntimeError("sandbox.run() was called in a handler, while a launch runs: call it in the test")
        _refuse_running_loop()
        handlers, recurrences = self._prepare()
        queues = self._served(handlers)
        options = consumer_options(
            self._settings, queues, LauncherRule.PARALLEL, until_empty=until_empty, max_messages=max_messages
        )
        # A wait need not be cut short, since no signal can come. Reports of progress are stored at once.
        options = options._replace(memory_limit=None, longest_wait=options.idle_time, report_every=0.0)
        consumer = self._settings.consumer
        plan = LaunchPlan(timeout, consumer.grace, handler_limit=consumer.handler_limit)
        launch = SandboxLaunch(self._opener, CONSUMER, plan, self._clock, self._listen)
        executor = WatchedExecutor(launch, raising=raising)
        opens, lasts = self._clock.now_ms, ceil_ms(timeout)

        def patience(until: int, due: int | None) -> int | None:
            assert end is not None
            if self._clock.now_ms < end:
                if self._anything_ready(options.queues) or self._anything_gathered(options.queues):
                    return min(until, end)  # until then a limit holds messages back, or a bulk call waits for more
                if due is not None and due <= min(opens + lasts, end):
                    return max(until, min(due, opens + lasts // 2))  # one wait while nothing can happen
            launch.stop()
            return None

        self._launching, self._clock.patience = True, None if end is None else patience
        end_hooks = begin_launch([app.hooks for app in registry.apps])
        try:
            reason = launch.run(lambda launch: consume(launch, options, handlers, recurrences, executor))
        finally:
            self._launching, self._clock.patience = False, None
            end_hooks(hook_timeout)
        if executor.raised is not None:
            raise executor.raised
        counts = launch.progress.counts()
        return Launched(counts.handled, counts.failed, counts.released + counts.yielded, reason)

    def _served(self, handlers: Mapping[str, Handler]) -> tuple[str, ...]:
        """The queues that launches serve: with a configuration file as usual, without one all queues."""
        if self._configured:
            return served_queues(self._settings, handlers)
        known = {*self._store.queues(), *(handler.queue for handler in handlers.values())}
        return ("default", *sorted(known - {"default"}))

    def _anything_ready(self, queues: Sequence[str]) -> bool:
        """Whether a launch would find a ready message, or one that a limit holds back."""
        services = service_of(self._store.wire, self._store.keys, queues).values()
        return any(service.ready and not service.paused for service in services)

    def _anything_gathered(self, queues: Sequence[str]) -> bool:
        """Whether a waiting launch has taken messages which wait for others, for a bulk call."""
        return any(self._store.wire.all([("ZCARD", self._store.keys.queue(each, "in_flight")) for each in queues]))

    def _advance_to(self, instant: int) -> None:
        if not self._launching:
            self._prepare()
        self._clock.pass_until(instant)


def _decoded(message: Message) -> Message:
    """``message``, decoded by the codec of its handler's application, if that has one."""
    known = registry.handlers().get(message.handler)
    codec = None if known is None else known.definition.codec
    payload, result = (readable_value(each, codec) for each in (message.payload, message.result))
    return message._replace(payload=payload, result=result)


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "a launch runs an event loop of its own: call it outside of coroutines, as in a plain test function"
    )


def _milliseconds(span: Span, name: str = "span") -> int:
    return ceil_ms(seconds_in(name, span))
