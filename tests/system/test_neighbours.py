"""What is garbage, of a newer version, or unknown here costs its neighbours nothing, in the store or a configuration:
everybody else's messages go on, one line says so, and the launch ends as it would have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from pollconsumer.store.keyspace import Keys
from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

GOOD = """
[recurrences.good]
handler = "record"
every = "1s"
payload = { name = "good" }
"""
PARIS = """
[recurrences.paris]
handler = "record"
cron = "0 0 29 2 *"
timezone = "Europe/Paris"
payload = { name = "paris" }
"""
NO_ZONES = {"PYTHONTZPATH": "/nonexistent"}


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site(GOOD)
    yield site
    site.close()


@pytest.fixture
def redis(site: Site) -> Iterator[Redis]:
    site.drain()
    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as client:
        yield client


def key(name: str, queue: str = "default") -> str:
    return Keys("pollconsumer").queue(queue, name)


def enqueued(site: Site) -> int:
    listed = {entry["name"]: entry for entry in site.json("recurrences", "list")}
    count: int = listed["good"]["enqueued"]
    return count


def move_until_it_enqueued(site: Site, **environment: str) -> tuple[int | None, list[str]]:
    """A mover's exit code and lines, once the good recurrence has come twice more."""
    before = enqueued(site)
    mover = site.start("move", "--timeout", "60s", **environment)
    wait_until(lambda: enqueued(site) >= before + 2, "an occurrence of the good one")
    mover.terminate()
    _, errors = mover.communicate(timeout=90)
    return mover.returncode, errors.splitlines()


def test_recurrences_that_no_mover_can_read_cost_the_others_nothing(site: Site, redis: Redis) -> None:
    good: dict[str, Any] = json.loads(redis.hget(key("recurrences"), "good"))  # type: ignore[arg-type]  # no coroutine
    spoilt: dict[str, tuple[str, str]] = {
        "a-score": (json.dumps(good | {"name": "a-score"}), "-inf"),
        "b-score": (json.dumps(good | {"name": "b-score"}), "-1"),
        "c-text": ("garbage", "1"),
        "d-newer": (json.dumps(good | {"name": "d-newer", "until": 5}), "1"),
        "e-zone": (
            json.dumps(good | {"name": "e-zone", "every": None, "cron": "* * * * *", "timezone": "No/Where"}),
            "1",
        ),
        "f-rule": (json.dumps(good | {"name": "f-rule", "every": 0}), "1"),
        "g-never": (json.dumps(good | {"name": "g-never"}), "1e300"),
        "h-never": (json.dumps(good | {"name": "h-never"}), "+inf"),
    }
    for name, (definition, score) in spoilt.items():
        redis.hset(key("recurrences"), name, definition)
        redis.zadd(key("next_instants"), {name: float(score)})
    redis.zadd(key("next_instants"), {"i-alone": 1})
    code, lines = move_until_it_enqueued(site)
    assert code == 0
    said = sorted(line.split()[3] for line in lines)
    assert said == ["a-score", "b-score", "c-text", "d-newer", "e-zone", "f-rule", "i-alone"], lines
    assert all(" of queue default is skipped: " in line for line in lines)
    listed = {entry["name"]: entry for entry in site.json("recurrences", "list")}
    assert listed.keys() == {"good", "i-alone", *spoilt}
    assert listed["good"]["error"] is None
    assert all(listed[name]["error"] for name in listed.keys() - {"good"})
    assert "d-newer" in site.command("recurrences", "list").stdout
    for name in ("next", "trigger", "resume"):
        refused = site.command("recurrences", name, "d-newer")
        assert (refused.returncode, refused.stderr.count("\n")) == (65, 1)
    for name in listed.keys() - {"good"}:
        assert site.command("recurrences", "remove", name).returncode == 0
    assert [entry["name"] for entry in site.json("recurrences", "list")] == ["good"]
    assert move_until_it_enqueued(site) == (0, [])


def test_a_mover_that_knows_no_time_zones_goes_on_with_what_needs_none_and_the_rest_stays_due(site: Site) -> None:
    config = site.directory / "config.toml"
    config.write_text(config.read_text() + PARIS)
    site.drain()
    config.write_text('handlers = ["handlers"]\n')
    (site.directory / "tzdata.py").write_text("raise ImportError\n")  # hides the package that zoneinfo looks into last
    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as redis:
        redis.zadd(key("next_instants"), {"paris": 1_600_000_000_000})
        code, lines = move_until_it_enqueued(site, **NO_ZONES)
        assert code == 0
        assert [line.partition("is skipped: ")[2] for line in lines] == [
            "time zone 'Europe/Paris' is not known here; install tzdata"
        ]
        (site.directory / "tzdata.py").unlink()
        assert move_until_it_enqueued(site, **NO_ZONES) == (0, [])
        assert redis.hget(key("recurrence_counters"), "paris:enqueued") == b"1"


def test_a_configuration_whose_zones_are_not_known_here_says_what_to_install(site: Site) -> None:
    config = site.directory / "config.toml"
    config.write_text(config.read_text() + PARIS)
    (site.directory / "tzdata.py").write_text("raise ImportError\n")
    refused = site.command("run", **NO_ZONES)
    assert (refused.returncode, refused.stderr.count("\n")) == (78, 1)
    assert "recurrences.paris: timezone: Europe/Paris; no time zones are known here: install tzdata" in refused.stderr


def test_queues_with_a_key_of_another_type_cost_other_queues_nothing(site: Site, redis: Redis) -> None:
    names = ("recurrences", "next_instants", "schedule", "schedule_marker", "recurrence_owners")
    spoilt = dict(zip("abcde", names, strict=True))
    queues = [option for queue in spoilt for option in ("--queue", queue)]
    site.drain(*queues)
    for queue, name in spoilt.items():
        redis.set(key(name, queue), "somebody else's")
    before = site.enqueue("record", name="before")
    code, lines = move_until_it_enqueued(site)
    assert code == 0
    assert len(lines) == len(spoilt)
    for queue in spoilt:
        assert sum(f"queue {queue} is skipped: key of a wrong type" in line for line in lines) == 1
    together = site.command("run", *queues, "--queue", "default", "--max-messages", "1")
    assert together.returncode == 0
    assert sorted(together.stderr.splitlines()) == sorted(lines)
    assert site.state(before) == "completed"
    for queue in spoilt:
        alone = site.command("run", "--queue", queue, "--until-empty")
        assert (alone.returncode, alone.stderr.count("\n")) == (78, 1)


def test_a_mover_that_can_look_after_no_queue_is_refused(site: Site, redis: Redis) -> None:
    redis.delete(key("schedule"))
    redis.set(key("schedule"), "somebody else's")
    refused = site.command("move", "--timeout", "5s")
    assert refused.returncode == 78
    assert "key of a wrong type" in refused.stderr


def test_a_recurrence_whose_handler_is_unknown_costs_the_others_nothing(site: Site) -> None:
    config = site.directory / "config.toml"
    config.write_text(config.read_text() + GOOD.replace("good", "lost").replace('"record"', '"nobody"'))
    launch = site.start("run", "--timeout", "60s")
    site.await_note("good", 3)
    launch.terminate()
    _, errors = launch.communicate(timeout=90)
    assert launch.returncode == 0
    assert [line for line in errors.splitlines() if "no handler named nobody" in line] == errors.splitlines()
    assert errors.count("\n") == 1
