"""``pollconsumer recurrences``: recurring messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import partial, wraps
from itertools import chain, islice, takewhile
from typing import Any

import click

from pollconsumer.core.choices import After, Missed, Overlap
from pollconsumer.core.errors import BadData, ConfigurationError, NotFound, UsageError
from pollconsumer.core.messages.codec import shown_value
from pollconsumer.core.notation.instants import datetime_of, epoch_ms, iso, read_instant
from pollconsumer.core.recurrence import MOST_JITTER, MOST_LOOKED_AT, Recurrence, zone_of
from pollconsumer.core.spans import format_duration
from pollconsumer.interface.api.described import describe_recurrence
from pollconsumer.interface.api.recurrences import NAMED_STARTS, given_put
from pollconsumer.interface.assembly.handlers import OwnDefaults, configured_recurrences
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.messages.actions import MANY, report_counts, would
from pollconsumer.interface.cli.messages.enqueue import Report, payload_of
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import (
    json_text,
    note_more,
    print_table,
    printed_as_json,
    progress_bar,
    span,
    telling_when_interrupted,
)
from pollconsumer.interface.cli.types import (
    QUEUE_NAME,
    Duration,
    Value,
    WordType,
    json_option,
    limit_option,
    message_options,
    option,
    priority_option,
)
from pollconsumer.interface.logs.event_log import listener
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.values import check_cron
from pollconsumer.runtime.new_messages import Defaults
from pollconsumer.store.queues.producer import Enqueued
from pollconsumer.store.recurrence_actions import Occurred, Recurrences
from pollconsumer.store.recurrences import RecurrenceStatus, awaited, readable

NAME = click.argument("name")
Act = Callable[[Recurrences, RecurrenceStatus], None]
AS_JSON = json_option("Print JSON.")
LAST_RESULT = "result of last completed"
LEAST = ("missed", "overlap", "skipped", "enqueued", LAST_RESULT, "queue", "timezone", "last", "handler")
"""Columns to leave out on a narrow terminal, the first one first."""
RESULT_CHARACTERS = 40
"""Maximum length of a result in a table."""


def _day(text: str) -> date | int:
    """The day that ``text`` names; if it names an instant, that instant in epoch ms."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return read_instant(text)


@click.group()
def recurrences() -> None:
    """Recurring messages, from the configuration or added at run time."""


@recurrences.command(name="list", epilog="pollconsumer recurrences list\npollconsumer recurrences list --prefix check:")
@option("--prefix", "Only recurrences whose names begin with this.", default="")
@option("--created-by", "Only recurrences that this person added.")
@limit_option(1000)
@AS_JSON
def list_(prefix: str, created_by: str | None, limit: int) -> None:
    """List recurrences, with next due time, counts and last result."""
    every = _all(prefix, created_by)
    found = map(describe_recurrence, islice(every, limit))
    if not printed_as_json(found):
        entries = [*found]
        names = ["name", "rule", "timezone", "handler", "queue", "next", "missed", "overlap", "enqueued", "skipped"]
        names += ["last", "last_state"]
        errors = ["error"] if any(entry["error"] for entry in entries) else []
        rows = [
            [*(entry[name] for name in names), _shortened(entry["last_result"]), *(entry[name] for name in errors)]
            for entry in entries
        ]
        print_table([*names[:-1], "state", LAST_RESULT, *errors], rows, LEAST)
    note_more(every, limit)


@recurrences.command(name="next", epilog="pollconsumer recurrences next nightly -n 10")
@NAME
@click.option(
    "-n", "count", type=click.IntRange(1, 1000), help="Number of due times to show. Default: 5; with --dst, all."
)
@option(
    "--from", "Begin at this day, in the recurrence's time zone, or at this time.", Value("DAY", _day), name="start"
)
@click.option(
    "--dst", is_flag=True, help="Show the due times of days on which the clock changes, in the next 12 months."
)
@AS_JSON
def next_(name: str, count: int | None, start: date | int | None, dst: bool) -> None:
    """Preview when a recurrence is due next."""
    if dst and start is not None:
        raise UsageError("--dst and --from", None, "give one of the two")
    _, status = _found(name)
    rule = readable(status)
    now = _now_ms()
    after = _beginning(rule, status, start, now)
    ahead_of = partial(_ahead_of, rule, status, now)
    found = _clock_change_days(zone_of(rule.timezone), ahead_of, now) if dst else ahead_of(after)
    instants = [*islice(found, count or (None if dst else 5))]
    moments = [datetime_of(at).astimezone(zone_of(rule.timezone)) for at in instants]
    if not printed_as_json([iso(at) for at in instants]):
        print_table(
            (f"{name}, {rule.timezone}", "in"),
            [(m.strftime("%a %Y-%m-%d %H:%M:%S %Z"), _ahead(m, now)) for m in moments],
        )


def selecting(what: str) -> Callable[[Act], Callable[..., None]]:
    """A decorator that makes a command of an act on one recurrence. The command acts on the recurrence that it names,
    or on all that options select. ``what``: the outcome, such as ``paused``."""

    def command_of(act: Act) -> Callable[..., None]:
        @wraps(act)
        def call(name: str | None, prefix: str, created_by: str | None, yes: bool) -> None:
            store, selects = opened().recurrences, bool(prefix or created_by)
            if (name is not None) == selects:
                raise UsageError("recurrences", name, "give the name of one, or --prefix or --created-by")
            if name is not None:
                act(store, store.find(name))
                return
            status = store.statuses(listener(), prefix, created_by)  # a recurrence may come twice
            found = list({(each.queue, each.name): each for each in status}.values())
            if yes:
                _act_on_each(what, found, lambda status: act(store, status))
            else:
                would(what, len(found), "recurrence")

        for give in (
            json_option("With --prefix or --created-by: print one JSON object."),
            click.option("--yes", is_flag=True, help="Act on what options select; without --yes they only count."),
            option("--created-by", "Instead of a name: recurrences that this person added."),
            option("--prefix", "Instead of a name: recurrences whose names begin with this.", default=""),
            click.argument("name", required=False),
        ):
            call = give(call)
        return call

    return command_of


def _act_on_each(what: str, found: list[RecurrenceStatus], act: Callable[[RecurrenceStatus], None]) -> None:
    left, count = list[str](), 0
    with (
        telling_when_interrupted(lambda: f"{count} of {len(found)} done, and perhaps the next one"),
        progress_bar(len(found), shown=len(found) > MANY) as bar,
    ):
        for status in found:
            try:
                act(status)
            except (BadData, NotFound):
                left.append(status.name)
            count += 1
            bar.update(1)
    report_counts(what, count - len(left), left, "disabled, or removed meanwhile")


@recurrences.command(
    epilog="pollconsumer recurrences pause nightly\npollconsumer recurrences pause --prefix check: --yes"
)
@selecting("paused")
def pause(store: Recurrences, status: RecurrenceStatus) -> None:
    """Pause a recurrence: nothing is enqueued until it is resumed.

    Occurrences that come due meanwhile are skipped, not enqueued later."""
    store.pause(status)


@recurrences.command(
    epilog="pollconsumer recurrences resume nightly\npollconsumer recurrences resume --created-by ann --yes"
)
@selecting("resumed")
def resume(store: Recurrences, status: RecurrenceStatus) -> None:
    """Resume a paused recurrence with its next occurrence."""
    store.resume(status)


@recurrences.command(
    epilog="pollconsumer recurrences remove nightly\npollconsumer recurrences remove --created-by ann --yes"
)
@selecting("removed")
def remove(store: Recurrences, status: RecurrenceStatus) -> None:
    """Remove a recurrence.

    Messages that it has enqueued stay. If a configuration defines it, the next launch adds it again."""
    store.remove(status.name)


@recurrences.command(epilog="pollconsumer recurrences trigger nightly")
@NAME
@AS_JSON
def trigger(name: str) -> None:
    """Enqueue an extra occurrence now, and print its id."""
    store, status = _found(name)
    Report().show([Enqueued(store.trigger(status), False)])


@recurrences.command(epilog="pollconsumer recurrences history nightly")
@NAME
@limit_option(20, most=100)
@AS_JSON
def history(name: str, limit: int) -> None:
    """List the last occurrences of a recurrence, newest first.

    At most a hundred are listed, of the day up to the latest, as far as their messages are still kept."""
    store, status = _found(name)
    entries = [_describe_occurred(each) for each in store.history(status, limit)]
    if printed_as_json(entries):
        return
    names = ("instant", "state", "attempts", "late_seconds", "handled_seconds", "result", "last_error")
    rows = [[entry[name] for name in names] for entry in entries]
    rows = [[*row[:3], *map(span, row[3:5]), _shortened(row[5]), row[6]] for row in rows]
    titles = ("instant", "state", "attempts", "late", "duration", "result", "last error")
    print_table(titles, rows, ("late", "duration", "attempts", "result"))


def _found(name: str) -> tuple[Recurrences, RecurrenceStatus]:
    """The recurrence as stored, else as the configuration defines it for the next launch."""
    store = opened().recurrences
    try:
        return store, store.find(name)
    except NotFound:
        defined = configured_recurrences(current_settings()).get(name)
        if defined is None:
            raise
        return store, awaited(defined, _now_ms())


def _all(prefix: str, created_by: str | None) -> Iterator[RecurrenceStatus]:
    """The stored recurrences that match the options, then those of the configuration that are not stored yet."""
    try:
        defined = configured_recurrences(current_settings())
    except ConfigurationError as error:
        log.warning("%s", f"recurrences of the configuration are left out: {error}")
        defined = {}
    for status in opened().recurrences.statuses(listener(), prefix, created_by):
        defined.pop(status.name, None)
        yield status
    if created_by is None:
        yield from (awaited(each, _now_ms()) for name, each in defined.items() if name.startswith(prefix))


def _describe_occurred(occurred: Occurred) -> dict[str, Any]:
    message = occurred.message
    return {
        "id": message.id,
        "instant": iso(occurred.instant),
        "state": message.state,
        "attempts": message.attempts,
        "late_seconds": occurred.late_seconds,
        "handled_seconds": message.durations["handled_seconds"],
        "result": shown_value(message.result),
        "last_error": message.last_error,
    }


def _shortened(result: object) -> str | None:
    if result is None:
        return None
    text = json_text(result)
    return text if len(text) <= RESULT_CHARACTERS else f"{text[: RESULT_CHARACTERS - 1]}…"


def _beginning(rule: Recurrence, status: RecurrenceStatus, start: date | int | None, now: int) -> int:
    """The instant from which a preview shows due times."""
    if isinstance(start, int):
        return start - 1
    if start is not None:
        return epoch_ms(datetime.combine(start, time(), zone_of(rule.timezone))) - 1
    return now if status.next is None else max(now, epoch_ms(status.next) - 1)


def _ahead_of(rule: Recurrence, status: RecurrenceStatus, now: int, after: int) -> Iterator[int]:
    """The recurrence's instants later than ``after``, up to its end. Those from now until ``after`` count for its
    ``times``. UsageError if they are too many."""
    if status.ended:
        return iter(())
    begins = after if rule.times is None else min(after, now)
    if rule.at_run_time and status.next is not None:
        begins = max(begins, epoch_ms(status.next) - 1)
    found = rule.instants(begins, status.phase_ms)
    if rule.times is None:
        return found
    left = islice(found, max(0, rule.times - status.enqueued))
    for _, instant in zip(range(MOST_LOOKED_AT), left, strict=False):
        if instant > after:
            return chain((instant,), left)
    if next(left, None) is None:
        return iter(())
    raise UsageError("too many occurrences", f"{MOST_LOOKED_AT} until {iso(after)}", "preview an earlier time")


def _clock_change_days(zone: tzinfo, ahead_of: Callable[[int], Iterator[int]], now: int) -> Iterator[int]:
    """Instants on those days of the next 12 months on which ``zone`` changes its offset from UTC. ``ahead_of`` gives
    the instants later than another one."""
    today = datetime_of(now).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    for ahead in range(366):
        midnight, next_midnight = (today + timedelta(days=days) for days in (ahead, ahead + 1))
        if midnight.utcoffset() != next_midnight.utcoffset():
            first, end = (epoch_ms(moment) for moment in (midnight, next_midnight))
            yield from takewhile(end.__gt__, ahead_of(max(now, first - 1)))


def _now_ms() -> int:
    return epoch_ms(datetime.now(UTC))


def _ahead(moment: datetime, now: int) -> str:
    seconds = moment.timestamp() - now / 1000
    return format_duration(seconds) if seconds >= 0 else f"{format_duration(-seconds)} ago"


@recurrences.command(epilog="pollconsumer recurrences add nightly backup --cron '30 2 * * *' --timezone Europe/Paris")
@click.argument("name")
@click.argument("handler")
@click.argument("payload", required=False)
@option("--every", "Time between occurrences, as 5m.", Duration(positive=True))
@option(
    "--cron",
    "Cron expression, instead of --every. H in a field: a value chosen by the name.",
    Value("cron", partial(check_cron, recurs=True)),
)
@option("--jitter", "Enqueue each message later by a part of this, chosen by the name.", Duration(most=MOST_JITTER))
@option("--timezone", "Time zone of the cron expression. Default: UTC.")
@option(
    "--first",
    "First run of a new or changed recurrence: now, next (by its rule), or a time. Default: now.",
    Value(
        "now|next|TIME",
        lambda text: found if (found := text.lower()) in NAMED_STARTS else datetime_of(read_instant(text)),
    ),
)
@option("--times", "Stop after this many occurrences.", click.IntRange(1))
@option("--until", "Enqueue nothing after this time.", Value("time", lambda text: datetime_of(read_instant(text))))
@option("--missed", "Occurrences that were missed: skip, run the last once, or all. Default: once.", WordType(Missed))
@option(
    "--overlap",
    "While the last one is unfinished: allow another, skip it, queue one, or replace the last one. Default: allow.",
    WordType(Overlap),
)
@option("--after", "end: count --every from the end of the last one. Default: due.", WordType(After))
@option("--queue", "Queue of its messages. Default: the handler's.", QUEUE_NAME)
@priority_option(" Default: 0.")
@message_options
@option("--created-by", "Who added it, as shown by 'recurrences list'.")
@option("--ping", "Monitor URL to call when an occurrence starts and ends.", metavar="URL")
@click.option(
    "--disabled",
    is_flag=True,
    help="Add it switched off: it enqueues nothing until it is added again without --disabled.",
)
def add(name: str, handler: str, payload: str | None, disabled: bool, **options: Any) -> None:
    """Add a recurrence, or change the one of that name.

    It is stored, not written into config.toml. PAYLOAD is a JSON object; - reads it from standard input."""
    if (options["every"] is None) == (options["cron"] is None):
        raise click.UsageError("give either --every or --cron")
    settings = current_settings()
    own_defaults = OwnDefaults(settings)
    registered, defaults = None, Defaults()
    if options["queue"] is None:
        registered, defaults = own_defaults.function(handler), own_defaults.of(handler)
        if registered is None:
            own_defaults.checked(handler, {}, options["retry"])
    options |= {"handler": handler, "payload": payload_of(payload), "enabled": not disabled}
    codec = None if registered is None else registered.definition.codec
    opened().recurrences.put([given_put(name, registered, defaults, settings.namespace, codec, options)])
