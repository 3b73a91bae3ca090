"""Requests about occurrences: in order for one URL, few at a time, and of a bounded number."""

from __future__ import annotations

import threading

from pollconsumer.core.choices import Dialect
from pollconsumer.core.events import Event, PingFailed
from pollconsumer.runtime.launch.pings import AT_A_TIME, MOST_WAITING, NO_ANSWER, TOO_MANY, Monitors, Ping
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Reservation

LONG = 60.0


def at_rest() -> float:
    return 0.0


def occurrence(number: int = 0, attempt: int = 1) -> Reservation:
    row = bytearray(rows.HANDLER)
    row[rows.ATTEMPTS + 1] = attempt
    return Reservation.alone("mail", b"%d" % number, bytes(row), b"A" + bytes(10) + b"index\n{}")


def test_requests_to_one_url_are_in_order_whatever_their_number() -> None:
    told: list[str] = []
    of_all = Monitors(Dialect.HEALTHCHECKS, at_rest, lambda ping: told.append(ping.url.partition("?")[0]))
    for number in range(MOST_WAITING // 2):
        of_all.begin(occurrence(), "https://h/a")
        of_all.end(occurrence(), number, "line")
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
        of_all.begin(occurrence(number), f"https://h/{number}")
    assert threading.active_count() <= before + AT_A_TIME
    go_on.set()
    of_all.wait(lambda: LONG, said.append)
    assert said == [PingFailed("h", TOO_MANY)]
    assert most <= AT_A_TIME


def test_a_monitor_that_does_not_answer_is_waited_for_no_longer_than_there_is_time() -> None:
    answer, said = threading.Event(), list[Event]()

    def deliver(_: Ping) -> None:
        answer.wait()

    of_all = Monitors(Dialect.PLAIN, at_rest, deliver)
    of_all.begin(occurrence(), "https://h/a")
    of_all.wait(lambda: 0.2, said.append)
    answer.set()
    assert said == [PingFailed("h", NO_ANSWER)]


def test_a_further_attempt_is_told_of_by_its_end_alone_and_an_end_once() -> None:
    told: list[str] = []
    of_all = Monitors(Dialect.HEALTHCHECKS, at_rest, lambda ping: told.append(ping.url.partition("?")[0]))
    of_all.end(occurrence(), 0, "of another launch")
    for attempt in (1, 2):
        of_all.begin(occurrence(attempt=attempt), "https://h")
    for _ in range(2):
        of_all.end(occurrence(attempt=2), 1, "dead letter")
    of_all.wait(lambda: LONG, lambda _: None)
    assert told == ["https://h/start", "https://h/1"]
