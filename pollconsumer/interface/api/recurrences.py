"""``app.recurrences``: recurring messages that programs put, change and remove at run time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, Required, TypeVar, Unpack

from pollconsumer.core.choices import After, Missed, Overlap
from pollconsumer.core.errors import BadData, retelling, unknown_options
from pollconsumer.core.messages.codec import encoded_json, readable_value
from pollconsumer.core.messages.message import LONGEST_CREATOR, Codec
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.notation.instants import datetime_of, given_instant
from pollconsumer.core.recurrence import LONGEST_NAME, MOST_TIMES
from pollconsumer.core.spans import Span, parse_duration
from pollconsumer.core.users_code import refusing
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.registry import RegisteredHandler
from pollconsumer.interface.api.slips import check_arguments
from pollconsumer.interface.api.store_calls import AppCalls
from pollconsumer.interface.settings.model import RecurrenceSettings
from pollconsumer.interface.settings.reading import check_rule, recurrence_by
from pollconsumer.interface.settings.values import parse_word, read_period
from pollconsumer.runtime.new_messages import Defaults, OccurrenceOptions, due_ms
from pollconsumer.store.client.wire import Strict
from pollconsumer.store.recurrence_actions import AT_ONCE, Occurred, Put, Recurrences
from pollconsumer.store.recurrences import RecurrenceStatus
from pollconsumer.store.store import Store

_NAME = re.compile(rf"[A-Za-z0-9_.:@+-]{{1,{LONGEST_NAME}}}")
T = TypeVar("T")


class PutOptions(OccurrenceOptions, total=False):
    """The options of a recurrence.

    Give either ``every`` or ``cron``. ``every``: a period in seconds, as text such as ``5m`` or as a timedelta.
    ``cron``: an expression in ``timezone`` (UTC); ``H`` in a field stands for a value that depends on namespace and
    name alone. ``jitter``: each instant is delayed by a part of this. The part depends on namespace and name, too.
    The messages get ``payload``, ``priority`` and ``queue`` (by default the handler's, else ``default``).
    ``concurrency_key``, ``concurrency_limit``, ``order_key``, ``rate_key``, ``rate``, ``headers``, ``timeout``,
    ``max_attempts``, ``retry``: as in a message's ``using``. ``expires``: how long after its instant an occurrence may
    still begin. ``missed``, ``overlap``, ``after``: as in ``PollConsumer.every``. ``enabled=False``: the recurrence is
    listed, and does not recur.

    ``first``: the first instant if the recurrence is new, or has another rule than before. ``now`` (default): at once.
    ``next``: the next instant of the rule, with periods counted from the epoch. An aware datetime: the first instant
    from then on. Periods count from the first instant. ``times``: how many occurrences it has (default: no limit).
    ``until``: the latest instant, an aware datetime. ``created_by``: who put it, for lists. ``ping``: the URL of a
    monitor that is told how each occurrence begins and ends."""

    handler: Required[str]
    every: Span | None
    cron: str | None
    jitter: Span | None
    timezone: str
    payload: Mapping[str, Any] | None
    queue: str | None
    priority: int
    missed: Literal["skip", "once", "all"]
    overlap: Literal["skip", "allow", "queue", "replace"]
    after: Literal["due", "end"]
    enabled: bool
    first: Literal["now", "next"] | datetime
    times: int | None
    until: datetime | None
    created_by: str | None
    ping: str | None


class NamedPutOptions(PutOptions):
    """The options of a recurrence, and its ``name``: 1 to 100 letters, digits or any of ``_ . : @ + -``."""

    name: Required[str]


_OPTIONS = PutOptions.__annotations__.keys()
NAMED_STARTS = ("now", "next")


def new_put(
    name: str,
    registered: RegisteredHandler | None,
    defaults: Defaults,
    namespace: str,
    /,
    **options: Unpack[PutOptions],
) -> Put:
    """A validated recurrence of a ``namespace``, and its first instant. ``registered``: its handler, if this process
    has registered it. ``defaults``: the default options of the handler's messages.

    BadData (a ValueError) for an invalid value, TypeError for a naive datetime or an unknown option."""
    if unknown := options.keys() - _OPTIONS:
        raise unknown_options(unknown, _OPTIONS)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        rule = f"1 to {LONGEST_NAME} letters, digits or any of _ . : @ + -"
        raise BadData("recurrence name", repr(name), rule)
    with retelling(ValueError, BadData, f"recurrence {name}: "):
        given = {key: value for key, value in options.items() if value is not None}
        return _new_put(name, registered, defaults, namespace, given)


def given_put(
    name: str,
    registered: RegisteredHandler | None,
    defaults: Defaults,
    namespace: str,
    codec: Codec | None,
    options: Mapping[str, Any],
) -> Put:
    """`new_put` with a payload encoded by ``codec``, for options that come from JSON, where an instant may be text.
    BadData for anything invalid."""
    given = dict(options)
    for key, words in (("first", NAMED_STARTS), ("until", ())):
        if given.get(key) is not None and given[key] not in words:
            given[key] = instant_given(key, given[key])
    with retelling(TypeError, BadData):
        put = new_put(name, registered, defaults, namespace, **given)
    with refusing("codec", name, "encode"):
        return encoded_put(put, codec)


def instant_given(key: str, value: object) -> datetime:
    """The instant that ``value`` stands for. BadData, which names the option ``key``, if there is none."""
    try:
        return value if isinstance(value, datetime) else given_instant(value)
    except ValueError as error:
        raise BadData(key, value, str(error)) from None


def encoded_put(put: Put, codec: Codec | None) -> Put:
    """``put`` with its payload encoded."""
    recurrence, first = put
    if codec is None or not recurrence.payload:
        return put
    payload = json.loads(encoded_json(encode_payload(recurrence.payload), codec))
    return replace(recurrence, payload=payload), first


def _new_put(
    name: str, registered: RegisteredHandler | None, defaults: Defaults, namespace: str, given: dict[str, Any]
) -> Put:
    payload, first, until = given.pop("payload", {}), given.pop("first", "now"), given.pop("until", None)
    times, created_by = given.pop("times", None), given.pop("created_by", None)
    rule = _rule(given)
    if times is not None and (not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= MOST_TIMES):
        raise BadData("times", repr(times), f"a whole number from 1 to {MOST_TIMES}")
    if created_by is not None and (not isinstance(created_by, str) or not 0 < len(created_by) <= LONGEST_CREATOR):
        raise BadData("created_by", repr(created_by), f"text of 1 to {LONGEST_CREATOR} characters")
    fields = {
        "every": None if rule.every is None else _whole(parse_duration(rule.every)),
        "payload": _payload(payload, registered, rule.retry),
        "occurrence_wanted": registered is not None and registered.definition.takes_occurrence,
        "at_run_time": True,
        "times": times,
        "until": None if until is None else datetime_of(due_ms(until)),
        "created_by": created_by,
    }
    if first not in NAMED_STARTS:
        if not isinstance(first, datetime):
            raise BadData("first", repr(first), "now, next, or an instant: a datetime with a zone")
        first = due_ms(first)
    return recurrence_by(rule, name, namespace, defaults, **fields), first


def _rule(given: dict[str, Any]) -> RecurrenceSettings:
    """The options in ``given`` that recurrences of a configuration have, too, checked by the same rules."""
    for key in given.keys() & {"every", "jitter"}:
        given[key] = read_period(given[key])
    for key, kind in (("missed", Missed), ("overlap", Overlap), ("after", After)):
        if key in given:
            given[key] = parse_word(kind, key, given[key])
    rule = RecurrenceSettings(**given)
    check_rule(rule)
    return rule


def _payload(given: Mapping[str, Any], registered: RegisteredHandler | None, retry: str | None) -> Any:
    """The payload ``given`` as JSON values. If this process has registered the handler, the payload is checked against
    the handler's parameters, and ``retry`` against the names of its application's policies."""
    given = dict(given) if isinstance(given, Mapping) else given
    if registered is None or not isinstance(given, dict):  # what is no object is refused for that
        return json.loads(encode_payload(given))
    payload = json.loads(encode_payload(registered.arguments.dumped(given)))
    check_arguments(registered, payload, retry, recurs=True)
    return payload


def _whole(seconds: float) -> float:
    """``seconds``, as an int if it is a whole number, whose JSON is shorter."""
    return int(seconds) if seconds == int(seconds) else seconds


class AppRecurrences:
    """All recurrences of an application's namespace, including those that configurations define. Iterate to get all,
    about 1000 in a round trip.

    A name has at most one recurrence. All methods raise StoreUnreachable. Those for an existing recurrence raise
    NotFound if none has the name. Each ``…_async`` does the same without blocking an event loop."""

    def __init__(self, app: AppCalls) -> None:
        self._app = app

    def put(self, name: str, /, **options: Unpack[PutOptions]) -> None:
        """Add the recurrence ``name``, or replace it.

        Replacing changes only what is different. With the same rule, even with another payload, it keeps its next
        instant. With another ``every``, ``cron``, ``timezone``, ``jitter``, ``after``, ``enabled`` or ``queue`` it
        begins again, with ``first``. What is due stays due, unless the recurrence is disabled or ends. BadData for an
        invalid value, or if a configuration defines a recurrence of that name."""
        self._app.ask(_putting([self._new(name, options)]))

    async def put_async(self, name: str, /, **options: Unpack[PutOptions]) -> None:
        """`put` without blocking the event loop."""
        await self._app.ask_async(_putting([self._new(name, options)]))

    def put_many(self, wanted: Iterable[NamedPutOptions]) -> int:
        """`put` each, up to 500 in a round trip. Returns their number. If this raises, some may have been put."""
        put = [self._named(options) for options in wanted]
        for part in _round_trips(put):
            self._app.ask(_putting(part))
        return len(put)

    async def put_many_async(self, wanted: Iterable[NamedPutOptions]) -> int:
        """`put_many` without blocking the event loop."""
        put = [self._named(options) for options in wanted]
        for part in _round_trips(put):
            await self._app.ask_async(_putting(part))
        return len(put)

    def get(self, name: str) -> RecurrenceStatus:
        """The recurrence ``name`` as stored, even if a configuration defines it."""
        return decoded_status(self._app.ask(lambda store: store.recurrences.find(name)), self._app.codec)

    async def get_async(self, name: str) -> RecurrenceStatus:
        """`get` without blocking the event loop."""
        found = await self._app.ask_async(lambda store: store.recurrences.find(name))
        return decoded_status(found, self._app.codec)

    def remove(self, name: str) -> None:
        """Remove a recurrence and its history, but no message that it has enqueued. If a configuration defines the
        recurrence, the next launch with that configuration adds it again."""
        self._app.ask(lambda store: store.recurrences.remove(name))

    async def remove_async(self, name: str) -> None:
        """`remove` without blocking the event loop."""
        await self._app.ask_async(lambda store: store.recurrences.remove(name))

    def pause(self, name: str) -> None:
        """Pause a recurrence until it is resumed. Occurrences that come due meanwhile are skipped."""
        self._app.ask(_finding(name, Recurrences.pause))

    async def pause_async(self, name: str) -> None:
        """`pause` without blocking the event loop."""
        await self._app.ask_async(_finding(name, Recurrences.pause))

    def resume(self, name: str) -> None:
        """Resume a recurrence; it goes on with its next instant. BadData if the recurrence is disabled."""
        self._app.ask(_finding(name, Recurrences.resume))

    async def resume_async(self, name: str) -> None:
        """`resume` without blocking the event loop."""
        await self._app.ask_async(_finding(name, Recurrences.resume))

    def trigger(self, name: str) -> Handle[Any]:
        """Enqueue one more occurrence now, even if the recurrence is paused, disabled or has ended."""
        return self._triggered(*self._app.ask(_triggering(name, self._app.strict())))

    async def trigger_async(self, name: str) -> Handle[Any]:
        """`trigger` without blocking the event loop."""
        return self._triggered(*await self._app.ask_async(_triggering(name, self._app.strict())))

    def history(self, name: str, limit: int = 100) -> list[Occurred]:
        """The last occurrences, at most ``limit``, newest first: of a hundred in the day up to the latest, those whose
        messages the store still has."""
        return self._decoded(self._app.ask(_looking_back(name, limit)))

    async def history_async(self, name: str, limit: int = 100) -> list[Occurred]:
        """`history` without blocking the event loop."""
        return self._decoded(await self._app.ask_async(_looking_back(name, limit)))

    def __iter__(self) -> Iterator[RecurrenceStatus]:
        """Yield every recurrence. One that is put or removed meanwhile may be missed, or come twice."""
        return self.select()

    def select(self, *, prefix: str = "", created_by: str | None = None) -> Iterator[RecurrenceStatus]:
        """Yield the recurrences whose names begin with ``prefix`` and, if given, that ``created_by`` has put."""
        status = self._app.ask_for_each(lambda store: store.recurrences.statuses(lambda _: None, prefix, created_by))
        for found in status:
            yield decoded_status(found, self._app.codec)

    def _new(self, name: str, options: PutOptions) -> Put:
        handler = options.get("handler", "")
        known = self._app.known(handler, anywhere=options.get("queue") is not None)
        app_defaults = self._app.defaults_of(handler), self._app.settings().namespace
        return encoded_put(new_put(name, known, *app_defaults, **options), self._app.codec)

    def _decoded(self, found: list[Occurred]) -> list[Occurred]:
        return [each._replace(message=self._app.decoded(each.message)) for each in found]

    def _named(self, options: NamedPutOptions) -> Put:
        given: Any = dict(options)
        return self._new(given.pop("name", None), given)

    def _triggered(self, message_id: str, queue: str) -> Handle[Any]:
        return Handle(message_id, queue, self._app, duplicate=False)


def decoded_status(found: RecurrenceStatus, codec: Codec | None) -> RecurrenceStatus:
    """``found``, with its payload and its last result decoded if the codec can decode them."""
    if codec is None:
        return found
    rule, previous = found.recurrence, found.previous
    if rule is not None:
        found = found._replace(recurrence=replace(rule, payload=readable_value(rule.payload, codec)))
    if previous is not None:
        found = found._replace(previous=previous._replace(result=readable_value(previous.result, codec)))
    return found


def _round_trips(put: Sequence[Put]) -> Iterator[Sequence[Put]]:
    for at in range(0, len(put), AT_ONCE):
        yield put[at : at + AT_ONCE]


def _putting(put: Sequence[Put]) -> Callable[[Store], None]:
    return lambda store: store.recurrences.put(put)


def _finding(name: str, act: Callable[[Recurrences, RecurrenceStatus], T]) -> Callable[[Store], T]:
    """A call that finds the recurrence ``name``, and returns what ``act`` returns for it."""
    return lambda store: act(store.recurrences, store.recurrences.find(name))


def _triggering(name: str, strict: Strict | None) -> Callable[[Store], tuple[str, str]]:
    return _finding(name, lambda store, status: (store.trigger(status, strict), status.queue))


def _looking_back(name: str, limit: int) -> Callable[[Store], list[Occurred]]:
    return _finding(name, lambda store, status: store.history(status, limit))
