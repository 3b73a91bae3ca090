"""``queue pause --for``: a pause that ends by itself, and what shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.store.actions import MessageActions

if TYPE_CHECKING:
    from pollconsumer import PollConsumer
    from pollconsumer.testing import Sandbox
    from tests.site import Site


def test_a_pause_with_an_end_is_shown_with_it(site: Site) -> None:
    site.command("enqueue", "record", '{"name": "a"}')
    assert site.command("queue", "pause", "default", "--for", "2h").stderr == ""
    (queue,) = site.json("queue", "list")
    assert queue["paused"]
    assert 7000 < queue["resumes_in_seconds"] <= 7200
    for shown in ("status", "queue list"):
        assert "default (paused for " in site.command(*shown.split()).stdout
    site.drain()
    assert site.notes() == []
    assert site.command("queue", "pause", "default").returncode == 0
    assert site.json("status")["queues"][0]["resumes_in_seconds"] is None
    site.command("queue", "resume", "default")
    site.drain()
    assert site.notes() == ["a"]


def test_in_a_sandbox_a_pause_ends_at_its_time(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[int] = []
    app.handler("note")(lambda: seen.append(1))
    app.enqueue("note")
    store = sandbox.store_of(app)
    MessageActions(store.wire, store.keys.namespace).pause("default", paused=True, lasts_ms=3_600_000)
    sandbox.run()
    sandbox.advance("59m")
    sandbox.run()
    assert seen == []
    sandbox.advance("61s")
    sandbox.run()
    assert seen == [1]


def test_a_pause_lasts_for_some_time(site: Site) -> None:
    refused = site.command("queue", "pause", "default", "--for", "0s")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
