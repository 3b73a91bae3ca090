"""Launches of this version beside producers of a newer one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from redis import Redis

if TYPE_CHECKING:
    from tests.site import Site


def test_a_launch_says_once_that_it_leaves_messages_of_a_newer_version_and_handles_the_others(site: Site) -> None:
    newer = [site.enqueue("record", name=name) for name in ("one", "two")]
    site.enqueue("record", name="plain")
    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as client:
        for name in newer:
            client.hset("{pollconsumer:default}:b", name, b"C of a form that is not known here")
    launched = site.drain()
    assert launched.returncode == 0
    assert launched.stderr.splitlines() == [
        "pollconsumer: warning: queue default has messages of a newer pollconsumer, kept as they are; upgrade this one"
    ]
    assert site.notes() == ["plain"]
    assert site.state(newer[0]) == "scheduled"
    assert site.command("cancel", newer[0]).returncode == 65
    assert site.command("list").returncode == site.command("status").returncode == 0


def test_what_a_newer_version_adds_to_messages_and_outboxes_is_left_and_the_others_are_handled(site: Site) -> None:
    newer, plain = site.enqueue("record", name="newer"), site.enqueue("record", name="plain")
    queue = "{pollconsumer:default}"
    follow_up = {"queue": "default", "handler": "record", "payload": '{"name": "follow-up"}'}
    newer_follow_up = json.dumps([follow_up | {"id": "a", "then": "next"}])
    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as client:
        record: bytes = client.hget(f"{queue}:b", newer)
        option = b'{"timeout":5,"then":"next"}'
        head = b"B\x80%b\0%b%b" % (record[2:10], len(option).to_bytes(2, "big"), option)
        client.hset(f"{queue}:b", newer, head + record[11:])
        client.rpush(f"{queue}:o", newer_follow_up, json.dumps([follow_up | {"id": "b"}]))
        client.sadd(f"{queue}:open_groups", "one")
        client.sadd("{pollconsumer}:groups", "one")
    launched = site.drain()
    assert launched.returncode == 0
    assert launched.stderr.splitlines() == [
        "pollconsumer: warning: queue default has messages of a newer pollconsumer, kept as they are; upgrade this one"
    ]
    assert sorted(site.notes()) == ["follow-up", "plain"]
    assert (site.state(newer), site.state(plain)) == ("scheduled", "completed")
    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as client:
        assert client.hget(f"{queue}:b", newer) == head + record[11:]
        assert client.lrange(f"{queue}:o", 0, -1) == [newer_follow_up.encode()]
    for command in ("status", "list", "launches", "doctor", "metrics"):
        assert "Traceback" not in site.command(command).stderr
    refused = site.command("store", "export", "moved")
    assert refused.returncode == 65
    assert "newer pollconsumer" in refused.stderr
    assert "delete" not in refused.stderr
