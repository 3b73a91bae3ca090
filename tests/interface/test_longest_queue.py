"""`max_ready`: how many messages of a queue may be ready, and what is told who enqueues beyond it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from pollconsumer import Context, PollConsumer, QueueFull
from pollconsumer.testing import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.site import Site

LIMITED = "[queues.default]\nmax_ready = 3\n"
FULL = r"queue is full: default, 3 ready, 1 more; max_ready is 3: try again later"


@pytest.fixture
def app() -> PollConsumer:
    app = PollConsumer()
    app.handler("work")(lambda n=0: n)
    return app


@pytest.fixture
def limited(app: PollConsumer, tmp_path: Path) -> Iterator[Sandbox]:
    (tmp_path / "config.toml").write_text(LIMITED)
    with Sandbox(app, config=tmp_path / "config.toml") as sandbox:
        yield sandbox


def test_a_message_beyond_the_limit_is_refused_until_others_are_handled(app: PollConsumer, limited: Sandbox) -> None:
    for n in range(3):
        app.enqueue("work", {"n": n}, priority=n)
    with pytest.raises(QueueFull, match=FULL) as caught:
        app.enqueue("work", id="a")
    assert (caught.value.exit_code, caught.value.accepted) == (69, [])
    with pytest.raises(QueueFull, match=FULL):
        asyncio.run(app.enqueue_async("work"))
    assert app.enqueue("work", queue="other").state == "ready"
    assert app.enqueue("work", in_="1h").state == "scheduled"
    limited.run()
    assert app.enqueue("work", id="a").duplicate is False


def test_what_is_cancelled_or_waits_in_line_for_a_key(app: PollConsumer, limited: Sandbox) -> None:  # noqa: ARG001  the store
    for n in range(3):
        app.enqueue("work", {"n": n}, concurrency_key="k", id=str(n))
    app.message("1").cancel()
    assert app.enqueue("work").duplicate is False
    with pytest.raises(QueueFull):
        app.enqueue("work")


def test_in_bulk_the_error_has_what_was_accepted_before(app: PollConsumer, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[queues.default]\nmax_ready = 500\n")
    with Sandbox(app, config=tmp_path / "config.toml"):
        work = app.handler("bulk")(lambda n: n)
        with pytest.raises(QueueFull, match="450 ready, 75 more; max_ready is 500") as caught:
            work.enqueue_many([{"n": n} for n in range(700)])
        assert caught.value.accepted == [each.id for each in app.messages()]
        assert len(caught.value.accepted) == 450
        work.enqueue_many([{"n": n} for n in range(50)])


def test_what_handlers_send_on_and_recurrences_are_not_refused(app: PollConsumer, limited: Sandbox) -> None:
    @app.handler("fan")
    def fan(context: Context) -> None:
        for _ in range(9):
            context.enqueue("work")

    app.recurrences.put("often", handler="work", every="1s", times=9, missed="all")
    app.enqueue("fan", then=app.handler("last")(lambda: None).args())
    limited.run()
    states = [each.state for each in app.messages(handler="work")]
    assert sum(state == "completed" for state in states) >= 10
    assert [each.state for each in app.messages(handler="last")] == ["completed"]


def test_the_shell_says_what_was_accepted_and_how_to_go_on(site: Site) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write(LIMITED)
    lines = [{"handler": "record", "payload": {"name": str(n)}} for n in range(4)]
    (site.directory / "lines").write_text("\n".join(map(json.dumps, lines)))
    whole = site.command("enqueue", "--ndjson", "lines")
    assert (whole.returncode, len(whole.stdout.splitlines())) == (69, 3)
    assert "queue is full: default, 3 ready, 1 more" in whole.stderr
    assert whole.stderr.endswith("3 accepted before that: go on with --skip 3\n")
    refused = site.command("enqueue", "record", '{"name": "a"}')
    error = "pollconsumer: error: queue is full: default, 3 ready, 1 more; max_ready is 3: try again later\n"
    assert (refused.returncode, refused.stdout, refused.stderr) == (69, "", error)
    batch = site.command("enqueue", "--ndjson", "lines", "--batch", "b")
    assert (batch.returncode, "batch b is not closed: repeat the command" in batch.stderr) == (69, True)
    assert site.drain().returncode == 0
    assert site.notes() == ["0", "1", "2"]


def test_a_line_that_is_refused_behind_others_for_which_there_is_no_room_leaves_word_how_to_go_on(site: Site) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write(LIMITED)
    site.enqueue("record", "--id", "taken", name="a")
    site.enqueue("record", name="b")
    lines = [{"handler": "record", "payload": {"name": "c"}, "id": name} for name in ("c", "d", "taken")]
    (site.directory / "lines").write_text("\n".join(map(json.dumps, lines)))
    refused = site.command("enqueue", "--ndjson", "lines")
    assert (refused.returncode, refused.stdout) == (69, "")
    assert refused.stderr.endswith(
        "2 ready, 2 more; max_ready is 3: try again later; 0 accepted before that: go on with --skip 0\n"
    )


def test_a_batch_larger_than_the_limit_is_enqueued_as_launches_make_room(site: Site) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write(LIMITED)
    lines = [{"handler": "record", "payload": {"name": str(n)}} for n in range(7)]
    (site.directory / "lines").write_text("\n".join(map(json.dumps, lines)))
    codes = list[int]()
    while not codes or codes[-1]:
        codes.append(site.command("enqueue", "--ndjson", "lines", "--batch", "b").returncode)
        assert site.drain().returncode == 0
    assert codes == [69, 69, 0]
    assert site.notes() == [str(n) for n in range(7)]
    shown = site.json("batch", "show", "b")
    assert (shown["total"], shown["completed"], shown["ended_at"] is None) == (7, 7, False)


@pytest.mark.parametrize("value", ["0", "-1", "true", '"many"'])
def test_a_limit_is_a_whole_number_from_one_on(site: Site, value: str) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write(f"[queues.default]\nmax_ready = {value}\n")
    refused = site.command("enqueue", "record", '{"name": "a"}')
    assert (refused.returncode, "queues.default.max_ready" in refused.stderr) == (78, True)
