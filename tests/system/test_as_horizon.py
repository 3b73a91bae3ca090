"""What Horizon tells of queues that wait, of failed jobs and of tags, by alarms, findings and selections."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.system.monitor import Monitor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.site import Site


@pytest.fixture
def monitor(site: Site) -> Iterator[Monitor]:
    monitor = Monitor()
    site.environment["POLLCONSUMER_DOCTOR__URL"] = monitor.url
    yield monitor
    monitor.close()


def heard(monitor: Monitor) -> list[tuple[str, str | None, str]]:
    """Names, subjects and states of what was told since the last call."""
    found: list[dict[str, Any]] = [json.loads(body) for _, _, body in monitor.told]
    monitor.told.clear()
    return [(each["name"], each["subject"], each["state"]) for each in found]


def test_of_two_queues_that_wait_the_one_beyond_its_own_threshold_is_told(site: Site, monitor: Monitor) -> None:
    site.environment["POLLCONSUMER_QUEUES__MAIL__WAIT_ALARM"] = "1ms"
    site.environment["POLLCONSUMER_QUEUES__SLOW__WAIT_ALARM"] = "1h"
    for queue in ("mail", "slow"):
        site.enqueue("record", "--queue", queue, name=queue)
    site.command("run", "--until-empty", "--queue", "default")
    told = [each for each in heard(monitor) if each[0] == "oldest_ready"]
    assert told == [("oldest_ready", "mail", "began")]
    site.command("run", "--until-empty", "--queue", "mail", "--queue", "slow")
    assert ("oldest_ready", "slow", "began") not in heard(monitor)


def test_a_dead_letter_that_dies_again_is_told_anew_only_after_its_end(site: Site, monitor: Monitor) -> None:
    message = site.enqueue("fatal")
    site.command("run", "--until-empty")
    assert heard(monitor) == [("dead_letters", "default", "began")]
    assert site.command("dead", "redrive", message).returncode == 0
    site.command("run", "--until-empty")
    found = site.json("status", message)
    assert (found["state"], found["generation"], found["attempts"]) == ("dead", 1, 1)
    assert heard(monitor) == []
    site.command("dead", "purge", message, "--yes")
    site.command("run", "--until-empty")
    assert heard(monitor) == [("dead_letters", "default", "ended")]


def test_failed_messages_are_found_by_their_tags_and_redriven_by_these(site: Site) -> None:
    for customer, who in (("7", "ada"), ("7", "bob"), ("8", "ada")):
        site.enqueue("fatal", "--header", f"customer={customer}", "--created-by", who)
    site.enqueue("record", "--header", "customer=7", "--created-by", "ada", name="a")
    site.command("run", "--until-empty")

    def dead(*words: str) -> int:
        return len(site.json("list", "--state", "dead", *words))

    by_both = ("--header", "customer=7", "--created-by", "ada")
    assert [dead(), dead("--header", "customer=7"), dead("--created-by", "ada"), dead(*by_both)] == [3, 2, 2, 1]
    assert site.command("dead", "redrive", "--header", "customer=7").returncode == 0
    site.command("run", "--until-empty")
    generations = {each["generation"] for each in site.json("list", "--state", "dead", "--header", "customer=7")}
    others = {each["generation"] for each in site.json("list", "--state", "dead", "--header", "customer=8")}
    assert (generations, others) == ({1}, {0})


@pytest.mark.ends_with(1)
def test_what_a_person_silences_by_a_pause_is_no_long_wait(site: Site, monitor: Monitor) -> None:
    site.environment["POLLCONSUMER_QUEUES__DEFAULT__WAIT_ALARM"] = "1ms"
    site.drain()
    site.command("queue", "pause", "default")
    site.enqueue("record", name="a")
    site.command("doctor")
    site.command("run", "--until-empty")
    assert heard(monitor) == []
    site.command("queue", "resume", "default")
    assert site.command("doctor").returncode == 1
    assert heard(monitor) == [("oldest_ready", "default", "began")]
