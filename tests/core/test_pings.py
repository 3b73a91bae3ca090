"""Each monitor is told in its own dialect that a launch begins, and how it ended."""

from __future__ import annotations

from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from pollconsumer.core.choices import Dialect
from pollconsumer.core.events import LaunchEnded
from pollconsumer.core.notation.text import check_address
from pollconsumer.runtime.launch.pings import Ping, dialect_of, ending_of, first, last

RUN = "0e0dd2a3-8d29-4a0b-a8b5-93c4e2a1ab11"
END = LaunchEnded("consumer", "no_time_to_handle", 55.25, handled=12, failed=1)
LINE = "consumer ran 55.2s (window over): 12 completed, 1 failed; exit code 0"


@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("https://hc-ping.com/UUID", Dialect.HEALTHCHECKS),
        ("https://hc.example/UUID", Dialect.HEALTHCHECKS),
        ("https://healthchecks.example.org/ping/UUID", Dialect.HEALTHCHECKS),
        ("https://cronitor.link/p/KEY/monitor", Dialect.CRONITOR),
        ("https://o1.ingest.sentry.io/api/7/cron/nightly/KEY/", Dialect.SENTRY),
        ("https://sentry.example.org/api/7/cron/nightly/KEY/", Dialect.SENTRY),
        ("https://nosnch.in/c2354d53d2", Dialect.SNITCH),
        ("https://example.org/cronitor.link/nosnch.in/hc.", Dialect.PLAIN),
        ("https://evilcronitor.link.example/p", Dialect.PLAIN),
    ],
)
def test_the_dialect_is_that_of_the_host_unless_it_is_chosen(url: str, dialect: Dialect) -> None:
    assert dialect_of(url, Dialect.AUTO) is dialect
    assert dialect_of(url, Dialect.SNITCH) is Dialect.SNITCH


def test_healthchecks_is_told_by_paths_and_a_run_id() -> None:
    url = "https://hc-ping.com/UUID"
    assert first(url, Dialect.HEALTHCHECKS, RUN) == Ping(f"{url}/start?rid={RUN}")
    assert last(url, Dialect.HEALTHCHECKS, RUN, ending_of(END, 0)) == Ping(f"{url}/0?rid={RUN}", LINE.encode())
    assert last(f"{url}/?create=1", Dialect.HEALTHCHECKS, RUN, ending_of(END, 75)).url == f"{url}/75?create=1&rid={RUN}"


def test_cronitor_is_told_by_states_and_metrics() -> None:
    url = "https://cronitor.link/p/KEY/monitor"
    started = first(url, Dialect.CRONITOR, RUN)
    assert started == Ping(f"{url}?state=run&series={RUN}")
    for code, state in ((0, "complete"), (69, "fail")):
        told = last(url, Dialect.CRONITOR, RUN, ending_of(END, code))
        query = parse_qs(urlsplit(told.url).query)
        assert (query["state"], query["series"], query["status_code"]) == ([state], [RUN], [str(code)])
        assert query["metric"] == ["count:12", "error_count:1", "duration:55.250"]
        assert query["message"] == [ending_of(END, code).line]
        assert told.body is None


def test_sentry_is_told_by_check_ins() -> None:
    url = "https://o1.ingest.sentry.io/api/7/cron/nightly/KEY/"
    started = first(url, Dialect.SENTRY, RUN)
    assert started == Ping(f"{url}?check_in_id={RUN}&status=in_progress")
    for code, status in ((0, "ok"), (69, "error")):
        query = dict(parse_qsl(urlsplit(last(url, Dialect.SENTRY, RUN, ending_of(END, code)).url).query))
        assert query == {"check_in_id": RUN, "status": status, "duration": "55.250"}


def test_a_snitch_hears_of_ends_only() -> None:
    url = "https://nosnch.in/c2354d53d2"
    assert first(url, Dialect.SNITCH, RUN) is None
    query = dict(parse_qsl(urlsplit(last(url, Dialect.SNITCH, RUN, ending_of(END, 69)).url).query))
    assert query == {"s": "69", "m": ending_of(END, 69).line}


def test_any_url_gets_a_request_at_the_start_and_one_with_the_line_at_the_end() -> None:
    url = "https://example.org/push/KEY?a=b"
    assert first(url, Dialect.PLAIN, RUN) == Ping(url)
    assert last(url, Dialect.PLAIN, RUN, ending_of(END, 0)) == Ping(url, LINE.encode())


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://h:abc/x",
        "https://h:99999/x",
        "https://h:0/x",
        "https://:80/x",
        "ftp://h/x",
        "https://h /x",
        "",
    ],
)
def test_an_address_that_no_monitor_can_have_is_refused_without_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"write https://HOST/…"):
        check_address(url)


@pytest.mark.parametrize("url", ["https://[::1]:8443/x", "http://user:word@h:80/x?a=b", "https://hc-ping.com/UUID"])
def test_an_address_of_a_monitor_is_taken(url: str) -> None:
    assert check_address(url) == url
