"""What a launch was handling, as it can be read after its death."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.shared_memory import entries
from pollconsumer.runtime.launch.shared_memory.entries import MessageInHand
from pollconsumer.runtime.launch.shared_memory.flight import Flight
from pollconsumer.runtime.launch.shared_memory.launch_progress import Counts, LaunchProgress
from pollconsumer.runtime.launch.shared_memory.series import BEGUN, RECORDED, Series
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Lot, Reservation

if TYPE_CHECKING:
    from collections.abc import Callable


def reservation(name: bytes, queue: str = "mail", handler: str = "send") -> Reservation:
    return Reservation.of(Lot(queue, bytes(62), handler, b"", 0, 0, 0.0), name, b"{}")


def test_what_has_ended_stays_until_it_is_settled() -> None:
    flight = LaunchProgress().flight
    first, second, third = reservation(b"a"), reservation(b"b", "other"), reservation(b"c")
    flight.enter(first, last=False)
    flight.enter(second, last=True)
    flight.enter(third, last=False)
    flight.end(first)
    flight.leave(third)
    assert set(flight.left_behind()) == {
        MessageInHand("mail", b"a", "send", ended=True, last=False),
        MessageInHand("other", b"b", "send", ended=False, last=True),
    }
    flight.settled()
    assert flight.left_behind() == [MessageInHand("other", b"b", "send", ended=False, last=True)]
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
    assert progress.trusted_until() == 7.5
    assert progress.counts() == counts
    assert progress.ended() == (StopReason.MEMORY, 75)
    assert progress.flight.left_behind() == [MessageInHand("mail", b"a", "send", ended=False, last=True)]


def test_the_same_id_in_two_queues_is_two_messages() -> None:
    flight = LaunchProgress().flight
    one, other = reservation(b"same", "one"), reservation(b"same", "other")
    flight.enter(one, last=False)
    flight.enter(other, last=False)
    flight.end(one)
    flight.settled()
    assert flight.left_behind() == [MessageInHand("other", b"same", "send", ended=False, last=False)]


def test_the_page_says_when_it_is_full_and_has_every_place_again_afterwards() -> None:
    flight = LaunchProgress().flight
    for _ in range(2):
        for n in range(Flight.MOST):
            assert flight.free()
            each = reservation(b"%d" % n)
            flight.enter(each, last=False)
            flight.end(each)
        assert not flight.free()
        assert len(flight.left_behind()) == Flight.MOST
        flight.settled()


def test_names_of_any_length_do_not_reach_into_the_next_place() -> None:
    flight = LaunchProgress().flight
    flight.enter(reservation(b"i" * 5000, "q" * 5000, "h" * 5000), last=False)
    flight.enter(reservation(b"next"), last=False)
    assert {held.id for held in flight.left_behind()} == {b"i" * 255, b"next"}


def lay(flight: Flight, *names: str, last: bool = False, begun: int = 0) -> list[Reservation]:
    """``begun``: how many are recorded as begun."""
    laid = [reservation(name.encode()) for name in names]
    for each in laid[:begun]:
        each.row = rows.begun(each.row)
    head = entries.head("send", "mail", 1, last=last)
    flight.series.lay(laid, [head + each.id for each in laid])
    return laid


def begin(flight: Flight) -> None:
    """The next one of the series."""
    flight.series.counts[BEGUN] += 1


def left_behind(flight: Flight) -> str:
    """Ids; of those that have ended in capitals."""
    return "".join(each.id.decode().upper() if each.ended else each.id.decode() for each in flight.left_behind())


def uncalled(flight: Flight) -> str:
    return "".join(each.id.decode() for each in flight.uncalled())


def test_of_a_series_what_has_begun_stays_until_it_is_settled() -> None:
    flight = LaunchProgress().flight
    first, second, _ = lay(flight, "a", "b", "c")
    assert left_behind(flight) == ""
    begin(flight)
    assert (left_behind(flight), flight.the_one()) == ("a", first)
    flight.series.end()
    begin(flight)
    assert (left_behind(flight), flight.in_hand(), flight.ids("mail")) == ("Ab", [second], {b"a", b"b"})
    flight.settled()
    assert (left_behind(flight), flight.ids("mail"), flight.ids("other")) == ("b", {b"b"}, set())
    flight.end(second)
    assert (left_behind(flight), flight.in_hand()) == ("B", [])
    flight.settled()
    assert left_behind(flight) == ""


def test_what_follows_in_a_series_leaves_alone_what_is_not_settled() -> None:
    flight = LaunchProgress().flight
    lay(flight, "a", "b", "c")
    begin(flight)
    flight.series.end()
    flight.enter(reservation(b"x"), last=False)
    lay(flight, "d", "e", last=True)
    begin(flight)
    assert left_behind(flight) == "xAd"
    assert [each.last for each in flight.left_behind()] == [False, False, True]
    assert {each.id for each in flight.in_hand()} == {b"x", b"d"}
    assert flight.the_one() is None


def test_of_a_series_it_is_known_what_is_recorded_as_begun_and_was_not_called() -> None:
    flight = LaunchProgress().flight
    messages = lay(flight, "a", "b", "c", "d")
    assert uncalled(flight) == ""
    flight.series.counts[RECORDED] = 3
    assert uncalled(flight) == "abc"
    begin(flight)
    flight.series.end()
    begin(flight)
    assert (left_behind(flight), uncalled(flight)) == ("Ab", "c")
    flight.enter(messages[2], last=True)  # not as part of the series
    assert uncalled(flight) == ""


def test_what_is_laid_again_is_still_known_to_be_recorded_as_begun() -> None:
    flight = LaunchProgress().flight
    lay(flight, "a", "b")
    begin(flight)
    flight.series.counts[RECORDED] = 2
    lay(flight, "x", "y")
    assert uncalled(flight) == ""
    lay(flight, "b", "c", "d", begun=2)
    assert (left_behind(flight), uncalled(flight)) == ("a", "bc")
    flight.series.end()
    flight.settled()
    lay(flight, "c", "d", begun=1)
    assert (left_behind(flight), uncalled(flight)) == ("", "c")


def test_what_leaves_a_series_makes_room_for_what_follows() -> None:
    flight = LaunchProgress().flight
    first, *_ = lay(flight, "a", "b")
    begin(flight)
    flight.leave(first)
    assert left_behind(flight) == ""
    [other] = lay(flight, "c")
    begin(flight)
    assert (left_behind(flight), flight.the_one()) == ("c", other)


def test_a_series_has_every_place_again_once_all_of_it_is_settled() -> None:
    series = LaunchProgress().flight.series
    for _ in range(2):
        room = series.room()
        laid = [Reservation.of(Lot("q" * 255, bytes(62), "h" * 255, b"", 0, 0, 0.0), b"i" * 255, b"{}")] * room
        series.lay(laid, [entries.head("h" * 255, "q" * 255, 255, last=False) + b"i" * 255] * room)
        for _ in range(room):
            series.counts[BEGUN] += 1
            series.end()
        assert room == Series.MOST
        assert series.room() == 0
        assert len(series.left_behind()) == room
        series.settled()
