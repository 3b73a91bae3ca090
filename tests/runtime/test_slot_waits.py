"""Which waits of handlers cannot end, as far as a launch knows."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from pollconsumer.runtime.handling.slot_waits import IN_SLOT, ServedQueues, SlotWaits


class InFlight(NamedTuple):
    name: str
    handler: str = "parent"
    attempt: int = 1


A, B = InFlight("a"), InFlight("b")


def waits(*in_flight: InFlight, slots: int = 1, shared: bool = False) -> SlotWaits:
    return SlotWaits(ServedQueues("launch", ("mail",), slots, lambda: 0.0, shared, lambda: in_flight))


def begin(waits: SlotWaits, message: InFlight) -> None:
    token = IN_SLOT.set(message)
    assert waits.begin() == message
    IN_SLOT.reset(token)


@pytest.mark.parametrize(
    ("waits", "queue", "awaited", "stuck"),
    [
        (waits(A), "mail", "c", True),
        (waits(A), "other", "c", False),
        (waits(A, shared=True), "mail", "c", False),
        (waits(A, B, slots=2), "mail", "c", False),
        (waits(A, B, slots=2), "mail", "b", False),
        (waits(A, B, slots=2), "mail", "a", True),
    ],
    ids=["the only slot", "a queue of others", "shared by settings", "a free slot", "in hand", "itself"],
)
def test_a_wait_is_stuck_where_no_slot_is_left_for_the_message(
    waits: SlotWaits, queue: str, awaited: str, *, stuck: bool
) -> None:
    begin(waits, A)
    assert waits.may_be_stuck(A, queue, awaited) is stuck


def test_one_gives_up_for_all() -> None:
    both = waits(A, B, slots=2)
    begin(both, A)
    begin(both, B)
    assert both.may_be_stuck(A, "mail", "c")
    assert both.may_be_stuck(B, "mail", "d")
    assert both.give_up(B, "mail", "d")
    assert not both.give_up(A, "mail", "c")
    both.end(B)
    both.end(A)
    begin(both, A)
    assert not both.may_be_stuck(A, "mail", "c")


def test_the_only_message_in_hand_is_the_one_that_waits_and_of_several_none_is() -> None:
    assert waits(A).begin() == A
    several = waits(A, B)
    assert several.begin() is None
    assert not several.may_be_stuck(None, "mail", "c")
    several.end(None)


def test_a_message_that_waits_twice_waits_until_both_have_ended() -> None:
    twice = waits(A)
    begin(twice, A)
    begin(twice, A)
    twice.end(A)
    assert twice.may_be_stuck(A, "mail", "c")
    twice.end(A)
    assert not twice.may_be_stuck(A, "mail", "c")
