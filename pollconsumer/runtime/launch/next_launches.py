"""The platform's next launches, by its cron expression."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from pollconsumer.core.instants import epoch_ms
from pollconsumer.core.window import OUR_OWN


class LocalZone(tzinfo):
    """This machine's zone with its changes of offset, which ``datetime.astimezone()`` alone ignores."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        assert moment is not None
        local = moment.replace(tzinfo=None)
        return local - datetime.fromtimestamp(local.timestamp(), UTC).replace(tzinfo=None)

    def dst(self, _: datetime | None) -> None:
        """Unknown."""

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        return datetime.fromtimestamp(moment.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)


def next_launches(expression: str, now: datetime | None = None, zone: tzinfo | None = None) -> tuple[float, float]:
    """Seconds from now until the next two launches of ``expression``, in ``zone``, else in local time, as cron does."""
    from pollconsumer.core.cron import Cron

    moment = now or datetime.now(UTC)
    ahead = Cron(expression).instants(epoch_ms(moment) + int(OUR_OWN * 1000), zone or LocalZone())
    seconds = moment.timestamp()
    first, second = next(ahead), next(ahead)
    return first / 1000 - seconds, second / 1000 - seconds
