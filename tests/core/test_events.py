"""Events are values of their fields."""

from __future__ import annotations

from pollconsumer.core.events import LaunchEnded, MessagesFound, OrphansRecovered


def test_events_are_equal_where_kind_and_fields_are() -> None:
    assert OrphansRecovered("mail", 2) == OrphansRecovered(queue="mail", messages=2)
    assert OrphansRecovered("mail", 2) != OrphansRecovered("mail", 3)
    assert OrphansRecovered("mail", 2) != MessagesFound("mail", 2)
    assert len({OrphansRecovered("mail", 2), OrphansRecovered("mail", messages=2)}) == 1


def test_what_is_not_given_has_its_default() -> None:
    event = LaunchEnded("consumer", "max_time", 1.5, handled=3)
    assert (event.handled, event.failed, event.run_id) == (3, 0, None)
    assert event.fields()["failed"] == 0
    assert repr(OrphansRecovered("mail", 2)) == "OrphansRecovered(queue='mail', messages=2)"


def test_counts_of_a_launch_leave_out_zeros() -> None:
    assert LaunchEnded("consumer", "empty", 1.5, handled=3, released=1, yielded=2).counts() == (
        "3 completed, 1 released, 2 asleep"
    )
    assert LaunchEnded("mover", "empty", 1.5, handled=3).counts() == "3 moved"
    assert LaunchEnded("consumer", "empty", 1.5).counts() == "no messages"
