"""The heartbeat's side of requests to stop: what it hears, passes on, and says."""

from __future__ import annotations

import os
import signal
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.runtime.launch import heartbeat
from pollconsumer.runtime.launch.board import LaunchProgress
from pollconsumer.runtime.launch.heartbeat import StopListener
from pollconsumer.runtime.system.signals import CALL
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import CommonFields, Reservation

if TYPE_CHECKING:
    from collections.abc import Iterator


class Store:
    """A wire: ``requested`` are the ids in the only queue, ``woken`` whether the marker is there."""

    look_every = inf

    def __init__(self) -> None:
        self.requested: list[bytes] = []
        self.paused: list[bytes] = []
        self.woken = self.away = False
        self.sent: list[Any] = []
        self.closed = 0

    def once(self, commands: list[Any]) -> list[list[bytes]]:
        if self.away:
            raise Unanswered("away", sent=False)
        found = {"{n:mail}:kz": self.requested, "{n}:paused_handlers": self.paused}
        return [[part for each in found[key] for part in (each, b"instant")] for _, key in commands]

    def send(self, commands: list[Any]) -> None:
        self.sent += commands

    def readable(self, _seconds: float) -> bool:
        return self.woken

    def receive(self, _commands: list[Any]) -> list[None]:
        self.woken = False
        return [None]

    def fileno(self) -> int:
        return 7

    def close(self) -> None:
        self.closed += 1


class Heard:
    def __init__(self) -> None:
        self.progress, self.store, self.said, self.calls = LaunchProgress(), Store(), list[str](), 0
        wire: Any = self.store
        self.listening = StopListener(os.getpid(), self.progress, wire, Keys("n"), "7", ["mail"], self.said.append)

    def reserved(self, name: str) -> Reservation:
        return Reservation(CommonFields("mail", rows.BLANK, "deaf", b"", 0, 0, 0.0), name.encode(), b"{}")

    def listen(self, ends: int = 2) -> bool:
        """Wait until it has looked so often."""
        looks = 0

        def wait(_seconds: float, descriptor: int | None) -> bool:
            nonlocal looks
            looks += 1
            assert descriptor in (None, 7)
            return looks == ends

        return self.listening.wait(wait, 60.0)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    monkeypatch.setattr(heartbeat, "STUBBORN_AFTER", 0.0)
    heard = Heard()

    def called(*_: object) -> None:
        heard.calls += 1

    before = signal.signal(CALL, called)
    yield heard
    signal.signal(CALL, before)


def test_a_request_is_passed_on_once_with_a_signal(heard: Heard) -> None:
    reservation, stops = heard.reserved("a"), heard.progress.stops
    heard.store.requested = [b"a", b"b"]
    assert heard.listen()
    assert (heard.calls, stops.any(), stops.asked(reservation), stops.asked(heard.reserved("c"))) == (
        2,
        True,
        True,
        False,
    )
    assert stops.pending() == {("mail", b"a"), ("mail", b"b")}
    heard.store.woken = True
    heard.listen()
    assert heard.calls == 2
    assert [command[:2] for command in heard.store.sent] == [("BLPOP", "{n:mail}:kx:7")] * 2


@pytest.mark.parametrize("name", [b"send", b"an.alias"])
def test_a_pause_of_a_handler_that_the_launch_serves_is_passed_on(name: bytes, heard: Heard) -> None:
    stops = heard.progress.stops
    stops.serve({"send": "send", "an.alias": "send"}, [])
    heard.store.paused = [name, b"of.another"]
    assert heard.listen()
    assert stops.any()
    assert (stops.pending(), stops.any(), [*stops.paused]) == (set(), False, ["send"])
    heard.store.paused, heard.store.woken = [], True
    heard.listen()
    assert (stops.pending(), stops.any(), [*stops.paused]) == (set(), False, [])


def test_a_handler_that_is_resumed_before_its_launch_listens_is_paused_no_more(heard: Heard) -> None:
    stops = heard.progress.stops
    stops.serve({"send": "send"}, ["send"])
    assert stops.paused == {"send"}
    assert heard.listen()
    assert (stops.pending(), [*stops.paused]) == (set(), [])


def test_a_launch_that_serves_no_paused_handler_goes_on_quickly(heard: Heard) -> None:
    heard.store.paused = [b"of.another"]
    assert heard.listen()
    assert (heard.progress.stops.pending(), heard.progress.stops.any()) == (set(), False)


def test_a_mover_which_has_no_queues_of_its_own_is_not_connected_for_it() -> None:
    store: Any = Store()
    mover = StopListener(os.getpid(), LaunchProgress(), store, Keys("n"), "7", [], lambda _: None)
    assert not mover.wait(lambda seconds, descriptor: (seconds, descriptor) != (60.0, None), 60.0)
    assert (store.sent, store.closed) == ([], 0)


def test_what_the_launch_has_forgotten_is_not_asked_for_again(heard: Heard) -> None:
    heard.store.requested = [b"a"]
    heard.listen()
    stops = heard.progress.stops
    assert stops.asked(heard.reserved("a"))
    stops.forget("mail", b"a")
    assert not stops.any()
    assert not stops.asked(heard.reserved("a"))


def test_more_requests_than_there_is_room_for_leave_the_last_ones() -> None:
    stops = LaunchProgress().stops
    for n in range(stops.MOST + 3):
        stops.ask(("mail", f"m{n}".encode()))
    assert stops.pending() == {("mail", f"m{n}".encode()) for n in range(3, stops.MOST + 3)}


def test_a_message_that_goes_on_is_named_once(heard: Heard) -> None:
    reservation = heard.reserved("a")
    heard.progress.flight.enter(reservation, last=False)
    heard.store.requested = [b"a", b"elsewhere"]
    for _ in range(4):
        heard.listen()
    (line,) = heard.said
    assert line.startswith("warning: not stopped: a (deaf), ")


def test_a_store_that_is_away_delays_nothing_and_is_asked_again(heard: Heard) -> None:
    heard.store.away = True
    assert heard.listen()
    assert (heard.store.closed, heard.calls) == (1, 0)
    heard.store.away, heard.store.requested = False, [b"a"]
    heard.listen()
    assert heard.calls == 1


def test_a_launch_of_half_a_second_costs_no_connection(heard: Heard) -> None:
    assert heard.listen(ends=1)
    assert heard.store.sent == []


def test_a_connection_without_a_descriptor_is_looked_at_again_and_again(heard: Heard) -> None:
    heard.store.look_every = 0.01
    waits: list[float] = []

    def wait(seconds: float, _descriptor: int | None) -> bool:
        waits.append(seconds)
        heard.store.woken, heard.store.requested = True, [b"a"]
        return len(waits) == 4

    assert heard.listening.wait(wait, 60.0)
    assert heard.progress.stops.pending() == {("mail", b"a")}
    assert max(waits[1:]) <= 0.01
