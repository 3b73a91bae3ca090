"""What becomes of messages that are not begun before their expiry: in launches, to hooks, and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Backoff, Context, NotCompleted, PollConsumer
from pollconsumer.core.errors import BadData

if TYPE_CHECKING:
    from pollconsumer.testing import Sandbox
    from tests.site import Site


@pytest.fixture
def handled(app: PollConsumer) -> list[str]:
    handled: list[str] = []

    @app.handler
    def note(name: str) -> None:
        handled.append(name)

    return handled


def test_one_that_is_begun_in_time_is_handled_and_one_that_is_not_ends_as_expired(
    app: PollConsumer, sandbox: Sandbox, handled: list[str]
) -> None:
    short = app.enqueue("note", {"name": "short"}, expires="1m")
    long = app.enqueue("note", {"name": "long"}, expires="61s")
    ever = app.enqueue("note", {"name": "ever"})
    sandbox.advance(60)
    launched = sandbox.run()
    assert handled == ["long", "ever"]
    assert [each.state for each in (short, long, ever)] == ["expired", "completed", "completed"]
    assert (launched.handled, launched.failed) == (2, 0)
    assert short.status().attempts == 0
    with pytest.raises(NotCompleted, match="expired"):
        short.wait()
    assert [each.id for each in app.messages(state="expired")] == [short.id]


def test_the_time_until_it_is_due_does_not_count(app: PollConsumer, sandbox: Sandbox, handled: list[str]) -> None:
    app.enqueue("note", {"name": "later"}, in_="1h", expires="1m")
    sandbox.run_for("2h")
    assert handled == ["later"]


def test_a_retry_that_comes_too_late_is_not_made(app: PollConsumer, sandbox: Sandbox) -> None:
    attempts: list[int] = []

    @app.handler(retry=Backoff(first="1h", most="1h", jitter=0))
    def fail(context: Context) -> None:
        attempts.append(context.attempt)
        raise ValueError

    handle = app.enqueue("fail", expires="90m")
    sandbox.run_for("5h")
    assert attempts == [1, 2]
    message = handle.status()
    assert (message.state, message.attempts, message.last_error) == ("expired", 2, "ValueError")


def test_a_redriven_one_is_handled_however_late(app: PollConsumer, sandbox: Sandbox) -> None:
    attempts: list[int] = []

    @app.handler(max_attempts=1)
    def fail(context: Context) -> None:
        attempts.append(context.generation)
        if context.generation == 0:
            raise ValueError

    handle = app.enqueue("fail", expires="1m")
    sandbox.run()
    sandbox.advance("1d")
    handle.redrive()
    sandbox.run()
    assert (attempts, handle.state) == ([0, 1], "completed")


def test_a_message_of_an_unknown_handler_expires_instead_of_being_parked_for_ever(
    app: PollConsumer, sandbox: Sandbox, handled: list[str]
) -> None:
    told: list[str] = []
    app.on_expired(lambda context: told.append(context.handler))
    handle = app.enqueue("nobody", expires="1m")
    sandbox.run()
    assert handle.state == "scheduled"
    sandbox.run_for("2m")
    assert (handle.state, told, handled) == ("expired", ["nobody"], [])


def test_a_hook_is_told_and_may_enqueue(app: PollConsumer, sandbox: Sandbox, handled: list[str]) -> None:
    @app.on_expired
    def tell(context: Context) -> None:
        context.enqueue("note", {"name": f"{context.id} {context.handler} {context.headers['n']}"})

    handle = app.enqueue("note", {"name": "short"}, expires="1s", headers={"n": "1"})
    sandbox.advance(2)
    sandbox.run()
    assert handled == [f"{handle.id} note 1"]


def test_its_unique_key_is_free_for_another(app: PollConsumer, sandbox: Sandbox, handled: list[str]) -> None:
    app.enqueue("note", {"name": "a"}, key="k", expires="1s")
    sandbox.advance(2)
    sandbox.run()
    assert not app.enqueue("note", {"name": "b"}, key="k").duplicate
    sandbox.run()
    assert handled == ["b"]


def test_one_warning_names_the_first_of_a_queue(
    app: PollConsumer, sandbox: Sandbox, handled: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = (app.enqueue("note", {"name": "a"}, expires="1s") for _ in range(2))
    sandbox.advance(2)
    sandbox.run()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        f"queue default: messages expired before a launch could handle them, such as {first.id} (note); "
        "'list --state expired' shows all"
    ]
    assert handled == []


@pytest.mark.parametrize("expires", [-1, "soon", True, "1001 years"])
@pytest.mark.usefixtures("sandbox")
def test_an_invalid_time_is_refused(app: PollConsumer, expires: Any) -> None:
    with pytest.raises((BadData, TypeError), match="expires"):
        app.enqueue("note", expires=expires)


def test_the_shell_sends_counts_and_lists_them(site: Site) -> None:
    message = site.command("enqueue", "record", '{"name": "a"}', "--expires", "1ms").stdout.strip()
    launched = site.drain()
    assert launched.returncode == 0
    assert (
        f"queue default: messages expired before a launch could handle them, such as {message} (record)"
        in launched.stderr
    )
    assert site.notes() == []
    shown = site.json("status", message)
    assert shown["state"] == "expired"
    assert shown["expires_at"] <= shown["timestamps"]["expired_at"]
    assert ["expires", shown["expires_at"]] in [
        line.split() for line in site.command("status", message).stdout.splitlines()
    ]
    (queue,) = site.json("status")["queues"]
    assert (queue["expired"], queue["ready"], queue["dead"]) == (1, 0, 0)
    assert [each["id"] for each in site.json("list", "--state", "expired")] == [message]
    assert site.command("cancel", message).returncode == 65
    refused = site.command("enqueue", "record", '{"name": "a"}', "--expires", "0")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
