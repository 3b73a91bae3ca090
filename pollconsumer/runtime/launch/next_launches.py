"""The next times at which the platform starts a launch, computed from its cron expression."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import TYPE_CHECKING

from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.core.window import OUR_OWN

if TYPE_CHECKING:
    from pollconsumer.core.notation.cron_expression import Cron


class LocalZone(tzinfo):
    """This machine's time zone, with its changes of offset in spring and autumn. ``datetime.astimezone()`` has none."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        assert moment is not None
        local = moment.replace(tzinfo=None)
        return local - datetime.fromtimestamp(local.timestamp(), UTC).replace(tzinfo=None)

    def dst(self, _: datetime | None) -> None:
        """None: callers need only the offset."""

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        return datetime.fromtimestamp(moment.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)


@cache
def _cron(expression: str) -> Cron:
    from pollconsumer.core.notation.cron_expression import Cron

    return Cron(expression)


def launched_ago(
    expression: str, ahead: tuple[float, float], now: datetime | None = None, zone: tzinfo | None = None
) -> float | None:
    """How many seconds ago ``expression`` was due for a launch that starts now; negative if the launch came a little
    early. ``ahead``: what `next_launches` returned. None if that is longer ago than its two instants are apart."""
    moment = epoch_ms(now or datetime.now(UTC))
    since = moment - int((ahead[1] - ahead[0] + 2 * OUR_OWN) * 1000)
    until = moment + int(OUR_OWN * 1000)
    due = None
    for instant in _cron(expression).instants(since, zone or LocalZone()):
        if instant > until:
            break
        due = instant
    return None if due is None else (moment - due) / 1000


def next_launches(expression: str, now: datetime | None = None, zone: tzinfo | None = None) -> tuple[float, float]:
    """Seconds from now until the next two instants of ``expression``, in ``zone``; by default in local time, as cron
    does."""
    moment = now or datetime.now(UTC)
    ahead = _cron(expression).instants(epoch_ms(moment) + int(OUR_OWN * 1000), zone or LocalZone())
    seconds = moment.timestamp()
    first, second = next(ahead), next(ahead)
    return first / 1000 - seconds, second / 1000 - seconds
