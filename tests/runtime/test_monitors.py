"""Requests about occurrences: in order for one URL, few at a time, and of a bounded number."""

from __future__ import annotations

import threading

import pytest

from pollconsumer.core.choices import Dialect
from pollconsumer.core.news.events import Event, PingFailed
from pollconsumer.core.news.pings import Ping
from pollconsumer.runtime.handling.handler import Bulk, Handler
from pollconsumer.runtime.handling.outcome import CallOutcomes, Outcome
from pollconsumer.runtime.pings import monitors
from pollconsumer.runtime.pings.monitors import AT_A_TIME, MOST_WAITING, Monitors
from pollconsumer.runtime.pings.pinger import NO_ANSWER
from pollconsumer.store.records.reservations import Reservation

LONG = 60.0


def at_rest() -> float:
    return 0.0


def test_requests_to_one_url_are_in_order_whatever_their_number() -> None:
    told: list[str] = []
    of_all = Monitors(Dialect.HEALTHCHECKS, at_rest, lambda ping: told.append(ping.url.partition("?")[0]))
    for number in range(MOST_WAITING // 2):
        of_all.begin("https://h/a", "r")
        of_all.end("https://h/a", "r", None, number, "line")
    of_all.wait(lambda: LONG, lambda _: None)
    ended = [f"https://h/a/{number}" for number in range(MOST_WAITING // 2)]
    assert told == [url for end in ended for url in ("https://h/a/start", end)]


def test_only_so_many_requests_are_in_flight_and_wait_and_one_warning_says_that_others_were_not_sent() -> None:
    most, now, go_on = 0, 0, threading.Event()
    lock = threading.Lock()

    def deliver(_: Ping) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        go_on.wait()
        with lock:
            now -= 1

    said: list[Event] = []
    before = threading.active_count()
    of_all = Monitors(Dialect.HEALTHCHECKS, at_rest, deliver)
    for number in range(20 * AT_A_TIME * MOST_WAITING):
        of_all.begin(f"https://h/{number}", "r")
    assert threading.active_count() <= before + AT_A_TIME
    go_on.set()
    of_all.wait(lambda: LONG, said.append)
    assert said == [PingFailed("h", monitors.TOO_MANY)]
    assert most <= AT_A_TIME


def test_a_monitor_that_does_not_answer_is_waited_for_no_longer_than_there_is_time() -> None:
    answer, said = threading.Event(), list[Event]()

    def deliver(_: Ping) -> None:
        answer.wait()

    of_all = Monitors(Dialect.PLAIN, at_rest, deliver)
    of_all.begin("https://h/a", "r")
    of_all.wait(lambda: 0.2, said.append)
    answer.set()
    assert said == [PingFailed("h", NO_ANSWER)]


@pytest.mark.parametrize(("error", "told"), [(None, ["/start", "/0"]), (ValueError("no"), ["/start"])])
def test_a_bulk_handlers_occurrence_ends_for_its_monitor_when_it_is_completed(
    error: Exception | None, told: list[str]
) -> None:
    heard: list[str] = []
    of_all = Monitors(Dialect.HEALTHCHECKS, at_rest, lambda ping: heard.append(ping.url.partition("?")[0]))
    outcomes = CallOutcomes([Outcome(error)])
    handler = Handler("index", lambda *_: outcomes, bulk=Bulk(2, 0.0))
    reservation = Reservation.alone("mail", b"a", bytes(62), b"A" + bytes(10) + b"index\n{}")
    assert of_all.watching(handler, reservation, "https://h").run({}, None) == outcomes
    of_all.wait(lambda: LONG, lambda _: None)
    assert heard == [f"https://h{each}" for each in told]
