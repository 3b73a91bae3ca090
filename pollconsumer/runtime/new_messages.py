"""Makes messages of handlers' arguments and options, and validates them, also after hooks, before any is sent."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypedDict, Unpack

from pollconsumer.core.errors import BadData, UsageError, unknown_options
from pollconsumer.core.messages import continuation as continuations
from pollconsumer.core.messages.message import (
    REPLACES,
    SCOPED_BY,
    TRAVELLING,
    UNTIL_START,
    NewMessage,
    check_concurrency,
    check_handler,
    check_headers,
    check_key,
    check_new_headers,
    checked,
    created_header,
    options_of,
    scoped_key,
)
from pollconsumer.core.messages.payloads import decode_payload, digest_of, encode_payload
from pollconsumer.core.notation.instants import ceil_ms, due_of, exact_epoch_ms
from pollconsumer.core.spans import YEAR, Span, check_rate, check_short_key, key_of, seconds_in
from pollconsumer.core.users_code import called

if TYPE_CHECKING:
    from pollconsumer.core.recurrence import Recurrence


BeforeEnqueue = Callable[["Draft"], object]
LONGEST_DELAY = 1000 * YEAR
_GIVE_WAY = {"tracestate": 1, "baggage": 2}
"""Headers of a trace whose length a client of the sender may choose. The last one gives way first."""
ROOM = 512
"""The bytes that `_GIVE_WAY` leave for further headers, such as ``created-by`` of a rerun."""
_NOT_WITH_REPLACE = {
    "id": "the key says which message is replaced: leave the id out",
    "then": "callbacks stay as they were: leave them out",
    "failed": "callbacks stay as they were: leave them out",
    "key_until": "it is until the start: leave that out",
}
"""Options that are refused together with ``replace``, and what the error says."""
_NEEDED_BY = {
    **dict.fromkeys(("key_lifetime", "key_scope", "key_until", "replace"), "key"),
    "concurrency_limit": "concurrency_key",
    "rate": "rate_key",
}
"""For each option, the option that it needs."""


class Draft:
    """A message before it is enqueued, for ``before_enqueue`` hooks. Only its ``headers``, a dict, can be changed."""

    __slots__ = ("_message", "headers")

    headers: dict[str, str]

    def __init__(self, message: NewMessage) -> None:
        self._message = message
        self.headers = dict(message.headers or {})

    @property
    def id(self) -> str:
        """The message's id."""
        return self._message.id

    @property
    def handler(self) -> str:
        """The name of the message's handler."""
        return self._message.handler

    @property
    def priority(self) -> int:
        """A number; a smaller one comes first."""
        return self._message.priority

    @property
    def payload(self) -> dict[str, Any]:
        """A copy of the payload, as it will be after JSON."""
        return decode_payload(self._message.payload)


def drafted(message: NewMessage, hooks: Sequence[BeforeEnqueue]) -> NewMessage:
    """``message`` as ``hooks`` have changed it. Raises what a hook raises, and BadData for invalid headers."""
    draft = Draft(message)
    for hook in hooks:
        called(hook, draft)
    return message._replace(headers=check_new_headers(draft.headers) or None)


def add_trace(draft: Draft, trace: Mapping[str, str]) -> None:
    """Add the headers of a ``trace`` to ``draft``, except those because of which the message would be refused."""
    for name in sorted(trace, key=lambda each: _GIVE_WAY.get(each, 0)):
        with suppress(BadData):
            check_new_headers({**draft.headers, name: trace[name] + " " * (ROOM if name in _GIVE_WAY else 0)})
            draft.headers[name] = trace[name]


class Sendable(Protocol):
    """What can be enqueued: ``handler.args(…)``, perhaps with options of its own, or a chain."""

    def __message__(self) -> NewMessage:
        """The message to enqueue; a chain's first link. TypeError or ValueError if it is invalid."""


class OccurrenceOptions(TypedDict, total=False):
    """Options that both a message and the occurrences of a recurrence may have, see `SendOptions`."""

    concurrency_key: str | None
    concurrency_limit: int
    order_key: str | None
    rate_key: str | None
    rate: str | None
    expires: Span | None
    headers: Mapping[str, str] | None
    timeout: Span | None
    max_attempts: int | None
    retry: str | None


class SendOptions(OccurrenceOptions, total=False):
    """Options of a message, in addition to handler and payload. Durations are seconds, texts such as ``5m``, or
    timedeltas.

    ``queue``: by default the handler's, else ``default``. ``in_``: a delay. ``at``: the due time, an aware datetime; a
    past one is due now. ``priority``: a smaller number comes first; 0 by default. ``id``: replaces a generated id. Two
    calls with the same id make one message; Conflict if the second has another handler or payload.

    ``key``: a unique key. If the queue has an unfinished message of the same handler and key, nothing is enqueued, and
    the id of that message is returned, marked ``duplicate``. ``key_lifetime``: the key lasts so long at most; no limit
    by default. ``key_scope="queue"``: all handlers share the key. ``key_until="start"``: the key ends when its message
    begins. ``replace=True``: a waiting message with the key gets the new payload and due time. ``at_most``: with
    ``replace``, it is due at most so long after it was first enqueued. ``concurrency_key``: at most
    ``concurrency_limit`` (1) messages of the queue with the same key are in flight. ``order_key``: messages of the
    queue with the same key begin in the order in which they became due, each when the one before has ended.
    ``rate_key``: messages of the queue with the same key are handed out at ``rate`` at most, such as ``60/1h``; by
    default at the handler's or the queue's rate.

    ``headers``: names and texts, 4 KiB at most, that travel with the message apart from its payload. ``created_by``:
    who creates the message, 200 characters at most, for lists; it is the header ``created-by``. ``timeout``,
    ``max_attempts`` and ``retry`` (the name of a ``PollConsumer.retry_policy``) replace the handler's. ``expires``: how
    long after its enqueueing or due time, whichever is later, it may still begin. After that it ends as expired.
    ``then``: a message, ``handler.args(…)``, enqueued when this one is completed. ``failed``: one for any other end."""

    queue: str | None
    in_: Span | None
    at: datetime | None
    priority: int
    key: str | None
    key_lifetime: Span | None
    key_scope: Literal["handler", "queue"] | None
    key_until: Literal["end", "start"] | None
    replace: bool
    at_most: Span | None
    id: str | None
    created_by: str | None
    then: Sendable | None
    failed: Sendable | None


_CALLBACKS = ("then", "failed")
JSON_KEYS = (
    *("handler", "payload"),
    *(name.removesuffix("_") for name in SendOptions.__annotations__ if name not in _CALLBACKS),
)
"""The keys of a message that is given as a JSON object. It has no callbacks."""


class Defaults(NamedTuple):
    """Options of a handler's messages, for producers that set none.

    ``rate_key``: the name of an argument. The ``rate`` holds for each value of that argument separately. Without it,
    the ``rate`` holds for all messages of the handler together. ``aliases``: the handler's earlier names."""

    queue: str = "default"
    rate: str | None = None
    rate_key: str | None = None
    aliases: Sequence[str] = ()

    def rated(self, message: NewMessage) -> NewMessage:
        """``message`` with this handler's rate and rate key, unless its producer set them. BadData if the key is
        invalid."""
        if self.rate is None and self.rate_key is None:
            return message
        key = message.rate_key or key_of(message.handler, message.payload, self.rate_key)
        check_rate("", key)
        return message._replace(rate_key=key, rate=message.rate or self.rate or "")

    def rated_recurrence(self, recurrence: "Recurrence") -> "Recurrence":
        """``recurrence``, whose occurrences get this handler's rate and rate key."""
        if self.rate is None and self.rate_key is None:
            return recurrence
        return recurrence.rated_as(self.rated(recurrence.message(encode_payload(recurrence.payload))))


_OPTIONS = SendOptions.__annotations__.keys()
_TRAVELLING = {"expires", "created_by", *TRAVELLING} & _OPTIONS


def refuse_unknown(options: SendOptions) -> None:
    """Raise TypeError if ``options`` has a name that is no field of `SendOptions`."""
    if unknown := options.keys() - _OPTIONS:
        raise unknown_options(unknown, _OPTIONS)


def copied(options: SendOptions) -> SendOptions:
    """A copy of ``options``, with a copy of the headers, so that the caller may change the originals."""
    headers = options.get("headers")
    return {**options, "headers": dict(headers)} if isinstance(headers, Mapping) else {**options}


def new_message(handler: str, payload: Mapping[str, Any], **options: Unpack[SendOptions]) -> NewMessage:
    """A validated message. TypeError for an ``at`` without a zone, or an unknown option; else BadData, a ValueError."""
    from pollconsumer.store.queues.producer import new_id  # reading settings, as for --help, needs no store

    refuse_unknown(options)
    given: dict[str, Any] = {
        name: value for name, value in options.items() if value is not None and (name, value) != ("replace", False)
    }
    _check_together(given)
    encoded = encode_payload(payload)
    delay = milliseconds("in_", given["in_"]) if "in_" in given else None
    longest = milliseconds("at_most", given["at_most"]) if "at_most" in given else None
    message = NewMessage(
        id=given["id"] if "id" in given else new_id(),
        queue=given.get("queue", "default"),
        handler=handler,
        payload=encoded,
        priority=given.get("priority", 0),
        due=_due(given["at"]) if "at" in given else None,
        delay=delay,
        key=stored_key(handler, given["key"], given.get("key_scope", "handler")) if "key" in given else "",
        key_lifetime=lifetime_ms("key_lifetime", given["key_lifetime"]) if "key_lifetime" in given else 0,
        concurrency_key=given.get("concurrency_key", ""),
        concurrency_limit=given.get("concurrency_limit", 1),
        key_rule=key_rule(given, delay, longest) if given else "",
        digest=digest_of(handler, encoded) if "id" in given else "",
        rate_key=given.get("rate_key", ""),
        rate=given.get("rate", ""),
        order_key=given.get("order_key", ""),
    )
    if given and (travelling := given.keys() & _TRAVELLING):
        message = _travelling(message, {name: given[name] for name in travelling})
    if "then" in given or "failed" in given:
        callbacks: dict[str, Any] = {
            name: callback_of(given[name], message.id, name) for name in ("failed", "then") if name in given
        }
        stored = continuations.encoded(continuations.Continuation(**callbacks))
        message = continuations.identified(message._replace(continuation=stored), message.id)
    return checked(message)


def callback_of(sendable: Sendable, owner: str, name: str, called_by: str = "") -> dict[str, Any]:
    """A callback as it is stored. ``owner``: the id of its message or batch, from which its own id follows. ``name``:
    ``then``, ``failed`` or ``ended``. ``called_by``: the batch's queue; empty for a message's callback. TypeError if
    ``sendable`` is no message. UsageError if it has an id, a key or callbacks. BadData for an invalid ``owner``."""
    message = message_of(sendable, name)
    refuse_own_identity(message, f"the callback {name}")
    if message.continuation:
        raise UsageError(f"the callback {name}", "has callbacks, or is a chain", "a callback is one message")
    continuation = continuations.encoded(continuations.Continuation(called_by=called_by)) if called_by else ""
    return continuations.packed(
        message._replace(id=continuations.following_id(owner, f":{name}"), continuation=continuation)
    )


def message_of(sendable: Sendable, what: str) -> NewMessage:
    """The message of ``sendable``. TypeError for anything else, such as the handler, with ``what`` as its name."""
    if not hasattr(sendable, "__message__"):
        raise TypeError(f"{what} must be arguments of a handler, as handler.args(…), not {type(sendable).__name__}")
    return sendable.__message__()


def refuse_own_identity(message: NewMessage, what: str) -> None:
    """Raise UsageError if ``message`` has an id or a unique key. As a duplicate it would not be enqueued, and the batch
    or chain that waits for it would wait for ever."""
    if message.digest or message.key:
        raise UsageError(what, "with an id or a key of its own", "leave it out: its id follows from its place")


def _check_together(given: dict[str, Any]) -> None:
    """Raise BadData for options that exclude or need each other, and for an empty rate, concurrency or order key, which
    `checked` would take for no key."""
    if "in_" in given and "at" in given:
        raise BadData("due time", None, "give in_ or at, not both")
    for name, needed in _NEEDED_BY.items():
        if name in given and needed not in given:
            raise BadData(name, given[name], f"give the {needed}, too")
    if "rate_key" in given:
        check_rate(given.get("rate", ""), given["rate_key"])
    if "concurrency_key" in given:
        check_concurrency(given["concurrency_key"], given.get("concurrency_limit", 1))
    if "order_key" in given:
        check_short_key(given["order_key"], "order key")


def _travelling(message: NewMessage, options: dict[str, Any]) -> NewMessage:
    """``message`` with ``options`` that are stored in its record, such as headers, after checking them."""
    if "expires" in options:
        message = message._replace(lifetime=lifetime_ms("expires", options.pop("expires")))
    if "created_by" in options:
        options["headers"] = check_headers(options.get("headers", {})) | created_header(options.pop("created_by"))
    if "timeout" in options:
        options["timeout"] = milliseconds("timeout", options["timeout"]) / 1000
    checked_options = options_of(message._replace(**options))
    return message._replace(**options | {"headers": check_new_headers(checked_options.headers) or None})


def due_ms(at: datetime) -> int:
    """``at`` in epoch milliseconds, rounded up so that no message begins too early. TypeError without a time zone."""
    return math.ceil(_due(at))


def _due(at: datetime) -> float:
    """``at`` in epoch milliseconds, with microseconds as its fraction. TypeError without a time zone."""
    if not isinstance(at, datetime):
        raise TypeError(f"at must be a datetime with a zone, not {type(at).__name__}")
    if at.utcoffset() is None:
        raise TypeError("at needs a zone: a naive time means another instant on every host")
    try:
        due_of(at)
    except ValueError as error:
        raise BadData("at", at, str(error)) from None
    return max(1, exact_epoch_ms(at))


def milliseconds(name: str, span: Span) -> int:
    """``span`` in whole milliseconds, rounded up. ``name``: the option, for errors. BadData beyond 1000 years."""
    seconds = seconds_in(name, span)
    if seconds > LONGEST_DELAY:
        raise BadData(name, span, "at most 1000 years")
    return ceil_ms(seconds)


def lifetime_ms(name: str, span: Span) -> int:
    """Like `milliseconds`, but BadData for 0, which would be stored as no limit."""
    found = milliseconds(name, span)
    if not found and not seconds_in(name, span):
        raise BadData(name, span, "must be more than 0")
    return max(1, found)


def stored_key(handler: str, given: object, scope: object) -> str:
    """The unique key as it is stored, with the handler if ``scope`` is ``handler``. BadData if key or scope is
    invalid."""
    key = check_key(given)
    if scope not in ("handler", "queue"):
        raise BadData("key_scope", repr(scope), "handler or queue")
    if SCOPED_BY in key:
        raise BadData("unique key", repr(key), "text without a zero character")
    if not key:
        raise BadData("unique key", repr(key), "text of 1 to 255 bytes; without a key leave it out")
    return scoped_key(check_handler(handler), key) if scope == "handler" else key


def key_rule(given: Mapping[str, Any], delay: int | None, longest: int | None) -> str:
    """The stored text of ``key_until``, ``replace`` and ``at_most``, which ``given`` has. ``delay`` and ``longest``:
    ``in_`` and ``at_most`` in ms; None if not given. BadData for options that contradict each other."""
    until = given.get("key_until", "end")
    if until not in ("end", "start"):
        raise BadData("key_until", repr(until), "end or start")
    replace = given.get("replace", False)
    if not isinstance(replace, bool):
        raise BadData("replace", repr(replace), "true or false")
    if not replace:
        if longest is not None:
            raise BadData("at_most", given["at_most"], "give replace, too")
        return UNTIL_START if until == "start" else ""
    for name, why in _NOT_WITH_REPLACE.items():
        if name in given:
            raise BadData("replace", f"with {name}", why)
    if given.get("key_scope") == "queue":
        raise BadData(
            "replace", "with key_scope", "a message would get the payload of another handler: leave out key_scope"
        )
    if longest is not None and delay is not None and longest < delay:
        raise BadData("at_most", given["at_most"], "shorter than the delay: make it longer")
    return f"{REPLACES}{0 if longest is None else max(1, longest)}"
