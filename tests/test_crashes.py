"""Messages whose process dies: who is blamed, and for how long they are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.site import Site


def test_three_deaths_in_flight_make_a_dead_letter(site: Site) -> None:
    message = site.enqueue("leave", how="die")
    for _ in range(4):
        site.drain()
    assert site.notes() == ["leave die"] * 3
    status = site.json("status", message)
    assert (status["state"], status["attempts"]) == ("dead", 4)
    assert status["last_error"].startswith("crashed")


def test_what_was_merely_reserved_beside_a_death_is_not_charged(site: Site) -> None:
    site.enqueue("record", name="quick")
    site.drain()  # so that the durations learned make the next launch reserve ahead
    site.enqueue("leave", how="die")
    beside = [site.enqueue("record", name=f"{n}") for n in range(5)]
    site.drain()
    for message in beside:
        status = site.json("status", message)
        assert (status["state"], status["attempts"]) == ("ready", 0)


def test_what_was_merely_reserved_beside_is_not_blamed_where_the_heartbeat_dies_too(site: Site) -> None:
    """As all processes of a container do."""
    for _ in range(3):
        site.enqueue("record", name="quick")
    site.drain()  # so that the durations learned make the next launch reserve ahead
    poison = site.enqueue("leave", how="vanish")
    beside = [site.enqueue("record", name=f"{n}") for n in range(5)]
    for _ in range(4):
        site.drain()
        site.command("lease", "break", "--yes")
    assert site.state(poison) == "dead"
    assert [site.state(message) for message in beside] == ["completed"] * 5
    assert site.notes().count("leave vanish") == 3


def test_a_neighbour_of_a_message_that_kills_its_process_is_completed(site: Site) -> None:
    poison = site.enqueue("leave", how="die")
    neighbour = site.enqueue("hold", name="a")
    launch = site.start("run", "--until-empty", "--concurrency", "2")
    launch.wait(20)
    site.open_gate()
    for _ in range(4):
        site.drain("--concurrency", "2")
    assert site.state(poison) == "dead"
    assert site.state(neighbour) == "completed"
    assert site.notes().count("end a") == 1
