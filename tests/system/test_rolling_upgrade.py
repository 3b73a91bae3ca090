"""Launches of this version beside producers of a newer one."""

from __future__ import annotations

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
        "pollconsumer: warning: queue default has messages of a newer version: left as they are; upgrade pollconsumer"
    ]
    assert site.notes() == ["plain"]
    assert site.state(newer[0]) == "scheduled"
    assert site.command("cancel", newer[0]).returncode == 65
    assert site.command("list").returncode == site.command("status").returncode == 0
