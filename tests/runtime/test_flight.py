"""What a launch was handling, as it can be read after its death."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.board import Counts, Flight, LaunchProgress, MessageInFlight
from pollconsumer.store.records.reservations import CommonFields, Reservation

if TYPE_CHECKING:
    from collections.abc import Callable


def reservation(name: bytes, queue: str = "mail", handler: str = "send") -> Reservation:
    return Reservation(CommonFields(queue, bytes(62), handler, b"", 0, 0, 0.0), name, b"{}")


def test_what_has_ended_stays_until_it_is_settled() -> None:
    flight = LaunchProgress().flight
    first, second, third = reservation(b"a"), reservation(b"b", "other"), reservation(b"c")
    flight.enter(first, last=False)
    flight.enter(second, last=True)
    flight.enter(third, last=False)
    flight.end(first)
    flight.leave(third)
    assert set(flight.left_behind()) == {
        MessageInFlight("mail", b"a", "send", ended=True, last=False),
        MessageInFlight("other", b"b", "send", ended=False, last=True),
    }
    flight.settled()
    assert flight.left_behind() == [MessageInFlight("other", b"b", "send", ended=False, last=True)]
    assert (flight.ids("mail"), flight.ids("other")) == (set(), {b"b"})


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_what_a_launch_and_its_heartbeat_write_does_not_overwrite_the_rest(order: tuple[int, ...]) -> None:
    progress, counts = LaunchProgress(), Counts(*range(1, len(Counts._fields) + 1))
    writes: list[Callable[[], object]] = [
        lambda: progress.trust_until(7.5),
        lambda: progress.count(counts),
        lambda: progress.end(StopReason.MEMORY, 75),
        lambda: progress.flight.enter(reservation(b"a"), last=True),
    ]
    for place in order:
        writes[place]()
    assert progress.trusted[0] == 7.5
    assert progress.counts() == counts
    assert progress.ended() == (StopReason.MEMORY, 75)
    assert progress.flight.left_behind() == [MessageInFlight("mail", b"a", "send", ended=False, last=True)]


def test_the_same_id_in_two_queues_is_two_messages() -> None:
    flight = LaunchProgress().flight
    one, other = reservation(b"same", "one"), reservation(b"same", "other")
    flight.enter(one, last=False)
    flight.enter(other, last=False)
    flight.end(one)
    flight.settled()
    assert flight.left_behind() == [MessageInFlight("other", b"same", "send", ended=False, last=False)]


def test_the_page_says_when_it_is_full_and_has_every_place_again_afterwards() -> None:
    flight = LaunchProgress().flight
    for _ in range(2):
        for n in range(Flight.MOST):
            assert flight.free
            each = reservation(b"%d" % n)
            flight.enter(each, last=False)
            flight.end(each)
        assert not flight.free
        assert len(flight.left_behind()) == Flight.MOST
        flight.settled()


def test_names_of_any_length_do_not_reach_into_the_next_place() -> None:
    flight = LaunchProgress().flight
    flight.enter(reservation(b"i" * 5000, "q" * 5000, "h" * 5000), last=False)
    flight.enter(reservation(b"next"), last=False)
    assert {held.id for held in flight.left_behind()} == {b"i" * 255, b"next"}
