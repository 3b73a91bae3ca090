"""Validates a recurrence, of a configuration or put at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pollconsumer.core.choices import After
from pollconsumer.core.errors import shown
from pollconsumer.core.messages.message import check_handler, check_priority
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.notation.text import site_of
from pollconsumer.core.notation.timespan import parse_duration
from pollconsumer.interface.settings.model import RecurrenceSettings
from pollconsumer.interface.settings.values import NAME, NAME_RULE, check_cron, check_zone


def check_recurrence(name: str, recurrence: RecurrenceSettings) -> None:
    """Raise ValueError for an invalid recurrence."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"its name; {NAME_RULE}")
    check_rule(recurrence)


def check_rule(recurrence: RecurrenceSettings) -> None:
    """Raise ValueError for an invalid field of a recurrence. The name is not checked."""
    try:
        check_handler(recurrence.handler)
    except ValueError as error:
        raise ValueError(f"handler; name the one that its messages are for: {error}") from None
    if recurrence.queue is not None and not (isinstance(recurrence.queue, str) and NAME.fullmatch(recurrence.queue)):
        raise ValueError(f"queue; {NAME_RULE}")
    check_priority(recurrence.priority)
    if not isinstance(recurrence.enabled, bool):
        raise ValueError(f"enabled: {shown(repr(recurrence.enabled))}; true or false")
    _check_when(recurrence)
    check_zone(recurrence.timezone)
    if recurrence.ping is not None:
        from pollconsumer.core.notation.text import check_address

        try:
            check_address(recurrence.ping)
        except ValueError as error:
            raise ValueError(f"ping: {shown(site_of(str(recurrence.ping)))}; {error}") from None
    _check_payload(recurrence.payload)


def _check_when(recurrence: RecurrenceSettings) -> None:
    if (recurrence.cron is None) == (recurrence.every is None):
        raise ValueError("no schedule; give cron or every")
    if recurrence.after is After.END and recurrence.every is None:
        raise ValueError("after: end; it needs every, a period, in place of cron")
    rules: tuple[tuple[str, str | None, Callable[[str], object]], ...] = (
        ("cron", recurrence.cron, check_cron),
        ("every", recurrence.every, _check_period),
    )
    for key, text, check in rules:
        if text is not None:
            try:
                if not isinstance(text, str):
                    raise ValueError("must be text")
                check(text)
            except ValueError as error:
                raise ValueError(f"{key}: {shown(text)}; {error}") from None


def _check_period(text: str) -> None:
    from pollconsumer.core.recurrence import LEAST_PERIOD, MOST_PERIOD

    seconds = parse_duration(text)
    if seconds < LEAST_PERIOD:
        raise ValueError("must be 1s or more")
    if seconds > MOST_PERIOD:
        raise ValueError("must be 1825d or less")


def _check_payload(payload: object) -> None:
    """Raise ValueError, with its place, for a value that is not JSON, such as a TOML date."""
    if not isinstance(payload, dict):
        raise ValueError(f"payload: {shown(repr(payload))}; must be a table")
    for path, value in _leaves(payload, "payload"):
        if value is not None and not isinstance(value, str | int | float):
            raise ValueError(f"{shown(path)}: {shown(value)}; JSON has no such value, write it as text")
    encode_payload(payload)


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves(part, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for at, part in enumerate(value):
            yield from _leaves(part, f"{path}[{at}]")
    else:
        yield path, value
