"""``handler pause`` and ``handler resume``: a handler that is switched off for a time."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from pollconsumer import Backoff
from pollconsumer.core.errors import NotFound
from pollconsumer.store.actions import HandlerPauses
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.records.reservations import Claim
from tests.conftest import NAMESPACE
from tests.site import wait_until

if TYPE_CHECKING:
    from pollconsumer import Backoff, PollConsumer
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.testing import Sandbox
    from tests.site import Site


def test_messages_of_a_paused_handler_wait_for_its_resumption(site: Site) -> None:
    assert site.command("handler", "pause", "record").stderr == ""
    assert site.command("handler", "pause", "record").returncode == 0
    message = site.enqueue("record", name="a")
    drained = site.drain()
    assert (drained.returncode, drained.stderr, site.notes()) == (0, "", [])
    shown = site.json("status", message)
    assert (shown["state"], shown["attempts"]) == ("scheduled", 0)
    assert shown["last_error"] == "paused: a person paused record"
    assert site.json("status")["paused_handlers"] == ["record"]
    assert "paused handlers: record" in site.command("status").stdout
    assert "handler_unknown" not in site.command("doctor", "--json").stdout
    assert site.command("handler", "resume", "record").stderr == ""
    site.drain()
    assert site.notes() == ["a"]
    assert site.json("status")["paused_handlers"] == []
    shown = site.json("status", message)
    assert (shown["attempts"], shown["last_error"]) == (1, None)


@pytest.mark.parametrize("name", ["mail.send", "send_mail"])
def test_a_pause_by_any_name_of_a_handler_holds_for_messages_of_all_its_names(site: Site, name: str) -> None:
    handler = "@app.handler('mail.send', aliases=['send_mail'])\ndef send() -> None: ...\n"
    (site.directory / "handlers.py").write_text(
        f"from pollconsumer import PollConsumer\napp = PollConsumer()\n{handler}"
    )
    assert site.command("handler", "pause", name).stderr == ""
    messages = [site.enqueue("mail.send"), site.enqueue("send_mail")]
    assert site.drain().stderr == ""
    assert [site.state(each) for each in messages] == ["scheduled", "scheduled"]
    assert "handler_unknown" not in site.command("doctor", "--json").stdout
    site.command("handler", "resume", name)
    site.drain()
    assert [site.state(each) for each in messages] == ["completed", "completed"]


@pytest.mark.parametrize("before", [False, True])
def test_a_launch_that_has_begun_hears_of_a_pause_and_of_its_end(site: Site, *, before: bool) -> None:
    if before:
        site.command("handler", "pause", "record")
    launch = site.start("run", "--timeout", "40s", "--idle-time", "500ms")
    latest = ""

    def is_next_one(state: str) -> bool:
        nonlocal latest
        latest = site.enqueue("record", name="a")
        wait_until(lambda: site.state(latest) not in ("ready", "reserved"), "the launch to take it")
        return site.state(latest) == state

    if not before:
        wait_until(lambda: is_next_one("completed"), "the first message")
        site.command("handler", "pause", "record")
    wait_until(lambda: is_next_one("scheduled"), "the launch to hear of the pause")
    assert site.json("status", latest)["last_error"] == "paused: a person paused record"
    site.command("handler", "resume", "record")
    wait_until(lambda: is_next_one("completed"), "the launch to hear of its end")
    launch.send_signal(signal.SIGTERM)
    assert launch.wait(20) == 0


def test_launches_at_work_are_woken(store: RedisStore) -> None:
    leases = Leases(store.wire, NAMESPACE)
    holder = json.dumps({"role": "consumer", "queues": ["mail", "slow"], "host": "ant", "pid": 1})
    taken = leases.acquire(Group("consumer", ("mail", "slow"), 1), "one", holder, "{}")
    assert isinstance(taken, Claim)
    HandlerPauses(store.wire, NAMESPACE).pause("record")
    for queue in ("mail", "slow"):
        marker = f"{store.keys.queue(queue, 'stop_marker')}:{taken.fence}"
        assert store.wire.command("LLEN", marker) == 1
        assert 0 < store.wire.command("PTTL", marker) <= 60_000


def test_what_is_not_paused_is_not_resumed(site: Site) -> None:
    refused = site.command("handler", "resume", "record")
    assert (refused.returncode, refused.stderr) == (
        66,
        "pollconsumer: error: handler is not paused: record; status lists those that are\n",
    )


def test_a_name_that_no_module_has_is_warned_of(site: Site) -> None:
    assert site.command("handler", "pause", "x").stderr.endswith("no module or command of this configuration has it\n")
    assert site.command("handler", "resume", "x").returncode == 0
    paused = site.command("handler", "pause", "recorrd")
    assert paused.returncode == 0
    assert "handler recorrd is paused, and may be misspelt" in paused.stderr
    assert site.json("status")["paused_handlers"] == ["recorrd"]


@pytest.mark.parametrize("bulk", [None, 9])
def test_other_handlers_go_on(app: PollConsumer, sandbox: Sandbox, bulk: int | None) -> None:
    seen: list[str] = []
    if bulk is None:
        app.handler("off")(lambda: seen.append("off"))
    else:

        @app.handler("off", bulk=bulk)
        def off(messages: list[dict[str, int]]) -> None:
            seen.extend("off" for _ in messages)

    app.handler("on")(lambda: seen.append("on"))
    store = sandbox.store_of(app)
    pauses = HandlerPauses(store.wire, store.keys.namespace)
    pauses.pause("off")
    handle, _ = app.enqueue("off"), app.enqueue("on")
    sandbox.run()
    assert seen == ["on"]
    sandbox.run_for("5m")
    assert seen == ["on"]
    status = handle.status()
    assert (status.state, status.attempts) == ("scheduled", 0)
    pauses.resume("off")
    sandbox.run()
    assert seen == ["on", "off"]


def test_an_interrupted_resumption_is_made_up_for_by_a_second_one(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[str] = []
    app.handler("off")(lambda: seen.append("off"))
    store = sandbox.store_of(app)
    pauses = HandlerPauses(store.wire, store.keys.namespace)
    pauses.pause("off")
    app.enqueue("off")
    sandbox.run()
    store.wire.command("HDEL", store.keys.control("paused_handlers"), "off")
    with pytest.raises(NotFound):
        pauses.resume("off")
    sandbox.run()
    assert seen == ["off"]


@pytest.mark.parametrize("replaced", [False, True])
def test_one_that_was_given_another_due_time_while_it_was_parked_keeps_that(
    app: PollConsumer, sandbox: Sandbox, *, replaced: bool
) -> None:
    seen: list[int] = []

    @app.handler("later")
    def later(number: int) -> None:
        seen.append(number)

    store = sandbox.store_of(app)
    pauses = HandlerPauses(store.wire, store.keys.namespace)
    pauses.pause("later")
    handle = later.using(key="k", replace=True).enqueue(1)
    sandbox.run()
    if replaced:
        assert later.using(key="k", replace=True, in_="1h").enqueue(2).id == handle.id
    else:
        handle.reschedule(in_="1h")
    pauses.resume("later")
    sandbox.run()
    assert seen == []
    sandbox.run_for("1h")
    assert len(seen) == 1


def test_a_message_that_failed_before_it_was_parked_does_not_say_why_it_was_once_it_is_completed(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    tries: list[int] = []

    @app.handler("sometimes", retry=Backoff("1h", 1, "1h", jitter=0))
    def sometimes() -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            raise ValueError

    store = sandbox.store_of(app)
    pauses, handle = HandlerPauses(store.wire, store.keys.namespace), sometimes.enqueue()
    sandbox.run()
    pauses.pause("sometimes")
    sandbox.run_for("1h")
    assert (sandbox.message(handle).last_error or "").startswith("paused: ")
    pauses.resume("sometimes")
    sandbox.run()
    assert (sandbox.message(handle).state, sandbox.message(handle).last_error) == ("completed", None)
