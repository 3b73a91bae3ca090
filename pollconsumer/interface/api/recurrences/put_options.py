"""Makes recurrences from the arguments of `put`, and validates them before they are sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, Required, TypedDict, Unpack

from pollconsumer.core.choices import After, Missed, Overlap
from pollconsumer.core.errors import BadData, unknown_options
from pollconsumer.core.messages.codec import encoded_json
from pollconsumer.core.messages.message import Codec, check_new_headers
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.notation.cron_expression import five_fields
from pollconsumer.core.notation.instants import datetime_of
from pollconsumer.core.notation.timespan import Span, parse_duration
from pollconsumer.core.recurrence import LONGEST_CREATOR, LONGEST_NAME, MOST_TIMES, First, Recurrence
from pollconsumer.interface.api.known import check_arguments
from pollconsumer.interface.api.registry import RegisteredHandler
from pollconsumer.interface.settings.model import RecurrenceSettings
from pollconsumer.interface.settings.recurrence_rules import check_rule
from pollconsumer.interface.settings.values import parse_word, read_period
from pollconsumer.runtime.new_messages import Defaults, due_ms
from pollconsumer.store.recurrences.recurrence_interventions import Put

_NAME = re.compile(rf"[A-Za-z0-9_.:@+-]{{1,{LONGEST_NAME}}}")


class PutOptions(TypedDict, total=False):
    """A recurrence, except for its name.

    One of ``every``, a period in seconds, as text such as ``5m`` or as a timedelta, and ``cron``, an expression in
    ``timezone``. ``payload``, ``priority``, ``headers``: of its messages. ``queue``: theirs, by default the handler's,
    else ``default``. ``missed``, ``overlap``, ``after``: as of ``PollConsumer.every``. With ``enabled=False`` it is
    listed and yields nothing.

    ``first``: where it begins if it is new, or has another rule: ``now`` at once; ``next`` with the rule's next
    instant, of periods since the epoch; from an aware datetime on. Periods count from the first instant. ``times``: how
    many occurrences it yields. ``until``: the latest instant, an aware datetime. ``created_by``: who put it, to be
    listed. ``ping``: the URL of a monitor that is told how each occurrence begins and ends.
    """

    handler: Required[str]
    every: Span | None
    cron: str | None
    timezone: str
    payload: Mapping[str, Any] | None
    queue: str | None
    priority: int
    headers: Mapping[str, str] | None
    missed: Literal["skip", "once", "all"]
    overlap: Literal["skip", "allow"]
    after: Literal["due", "end"]
    enabled: bool
    first: Literal["now", "next"] | datetime
    times: int | None
    until: datetime | None
    created_by: str | None
    ping: str | None


class NamedPutOptions(PutOptions):
    """A recurrence with its name. ``name``: 1 to 100 letters, digits or any of ``_ . : @ + -``."""

    name: Required[str]


_OPTIONS = PutOptions.__annotations__.keys()


def new_put(
    name: str,
    registered: RegisteredHandler | None,
    defaults: Defaults,
    /,
    **options: Unpack[PutOptions],
) -> Put:
    """A validated recurrence, and where it begins. ``registered``: its handler, if that is registered here;
    ``defaults``: those of its occurrences.

    BadData (a ValueError) for an invalid value, TypeError for a naive datetime or an unknown option.
    """
    if unknown := options.keys() - _OPTIONS:
        raise unknown_options(unknown, _OPTIONS)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        rule = f"1 to {LONGEST_NAME} letters, digits or any of _ . : @ + -"
        raise BadData("recurrence name", repr(name), rule)
    try:
        return _new_put(name, registered, defaults, {key: value for key, value in options.items() if value is not None})
    except ValueError as error:
        raise BadData(f"recurrence {name}: {error}") from None


def encoded_put(put: Put, codec: Codec | None) -> Put:
    """``put``, its payload encoded."""
    recurrence, first = put
    if codec is None or not recurrence.payload:
        return put
    payload = json.loads(encoded_json(encode_payload(recurrence.payload), codec))
    return replace(recurrence, payload=payload), first


def _new_put(name: str, registered: RegisteredHandler | None, defaults: Defaults, given: dict[str, Any]) -> Put:
    payload, first, until = given.pop("payload", {}), given.pop("first", "now"), given.pop("until", None)
    times, created_by = given.pop("times", None), given.pop("created_by", None)
    headers = check_new_headers(given.pop("headers", {}))
    rule = _rule(given)
    _check_limit(times)
    _check_creator(created_by)
    fields = vars(rule) | {
        "cron": None if rule.cron is None else five_fields(rule.cron),
        "every": None if rule.every is None else _whole(parse_duration(rule.every)),
        "queue": rule.queue or defaults.queue,
        "payload": _payload(payload, registered),
        "occurrence_wanted": registered is not None and registered.definition.takes_occurrence,
        "at_run_time": True,
        "times": times,
        "until": None if until is None else datetime_of(due_ms(until)),
        "headers": headers,
        "created_by": created_by,
    }
    return defaults.rated_recurrence(Recurrence(name=name, **fields)), _first(first)


def _rule(given: dict[str, Any]) -> RecurrenceSettings:
    """The options that a recurrence of a configuration has, too, checked in the same way."""
    if "every" in given:
        given["every"] = read_period(given["every"])
    for key, kind in (("missed", Missed), ("overlap", Overlap), ("after", After)):
        if key in given:
            given[key] = parse_word(kind, key, given[key])
    rule = RecurrenceSettings(**given)
    check_rule(rule)
    return rule


def _check_limit(times: object) -> None:
    if times is not None and (not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= MOST_TIMES):
        raise BadData("times", repr(times), f"a whole number from 1 to {MOST_TIMES}")


def _check_creator(name: object) -> None:
    if name is not None and (not isinstance(name, str) or not 0 < len(name) <= LONGEST_CREATOR):
        raise BadData("created_by", repr(name), f"text of 1 to {LONGEST_CREATOR} characters")


def _payload(given: Mapping[str, Any], registered: RegisteredHandler | None) -> Any:
    """The arguments in ``given`` as JSON has them; checked, if the handler is registered here."""
    given = dict(given) if isinstance(given, Mapping) else given
    if registered is None or not isinstance(given, dict):  # what is no object is refused as that
        return json.loads(encode_payload(given))
    payload = json.loads(encode_payload(registered.arguments.dumped(given)))
    check_arguments(registered, payload, recurs=True)
    return payload


def _first(first: Any) -> First:
    if first == "now":
        return "now"
    if first == "next":
        return "next"
    if not isinstance(first, datetime):
        raise BadData("first", repr(first), "now, next, or an instant: a datetime with a zone")
    return due_ms(first)


def _whole(seconds: float) -> float:
    """``seconds`` as an integer, whose text is shorter, if it is a whole number."""
    return int(seconds) if seconds == int(seconds) else seconds
