"""Handlers that were renamed, or take another form: messages of the old name and form are handled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, Item, PollConsumer
from pollconsumer.core.errors import BadData, ConfigurationError
from pollconsumer.interface.api.slips import check_arguments
from pollconsumer.testing import Launched, Sandbox, StopReason
from tests.inner import calls_of

if TYPE_CHECKING:
    from tests.site import Site


@dataclass
class Mail:
    to: str


UPGRADED = Launched(1, 0, 0, StopReason.EMPTY)


def from_address(payload: dict[str, Any]) -> dict[str, Any]:
    return {"to": payload.pop("address"), **payload}


def stand_in_for(app: PollConsumer, max_attempts: int = 5) -> list[tuple[str, str]]:
    """Register `mail.send`, once `send_mail`. Returns what it is called with: its name, and the argument."""
    calls: list[tuple[str, str]] = []

    @app.handler("mail.send", aliases=["send_mail"], upgrade=from_address, max_attempts=max_attempts)
    def send(context: Context, to: str) -> str:
        calls.append((context.handler, to))
        return to

    return calls


@pytest.mark.parametrize("payload", [{"to": "ada"}, {"address": "ada"}])
@pytest.mark.parametrize("name", ["mail.send", "send_mail"])
def test_a_message_of_either_name_and_form_is_handled(
    app: PollConsumer, sandbox: Sandbox, name: str, payload: dict[str, str]
) -> None:
    calls = stand_in_for(app)
    handle = app.enqueue(name, payload)
    assert sandbox.run() == UPGRADED
    assert calls == [("mail.send", "ada")]
    stored = sandbox.message(handle)
    assert (stored.handler, stored.payload, stored.result) == (name, payload, "ada")


def test_messages_of_producers_that_know_the_old_name_alone_are_handled(app: PollConsumer, sandbox: Sandbox) -> None:
    app.enqueue("send_mail", {"address": "ada"})
    calls = stand_in_for(app)
    sandbox.run()
    assert calls == [("mail.send", "ada")]


def test_many_messages_of_both_names_are_handled_in_their_order(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[str] = []

    @app.handler("mail.send", aliases=["send_mail"])
    def send(to: str) -> None:
        seen.append(to)

    for n in range(100):
        app.enqueue("send_mail" if n % 3 else "mail.send", {"to": str(n)})
    sandbox.run()
    assert seen == [str(n) for n in range(100)]


def test_what_fits_is_not_upgraded(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("mail.send", upgrade=lambda _: {"to": "nobody"})
    def send(to: str, subject: str = "") -> str:
        return to + subject

    handle = send.enqueue("ada")
    sandbox.run()
    assert sandbox.message(handle).result == "ada"


def test_the_payload_of_an_async_handler_is_upgraded(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("mail.send", aliases=["send_mail"], upgrade=from_address)
    async def send(to: str) -> str:
        return to

    handle = app.enqueue("send_mail", {"address": "ada"})
    sandbox.run()
    assert sandbox.message(handle).result == "ada"


def test_messages_of_both_names_share_a_bulk_call(app: PollConsumer, sandbox: Sandbox) -> None:
    calls: list[list[str]] = []

    def send(messages: list[Item[Mail]]) -> None:
        calls.append([each.payload.to for each in messages])

    app.handler("mail.send", bulk=10, aliases=["send_mail"], upgrade=from_address)(send)
    app.enqueue("send_mail", {"address": "ada"})
    app.enqueue("mail.send", {"to": "bob"})
    app.enqueue("send_mail", {"to": "eve"})
    sandbox.run()
    assert calls == [["ada", "bob", "eve"]]


def test_what_an_upgrade_raises_fails_the_attempt(app: PollConsumer, sandbox: Sandbox) -> None:
    handle = app.enqueue("send_mail", {"adress": "ada"})
    stand_in_for(app, max_attempts=2)
    sandbox.run_for("1h")
    message = sandbox.message(handle)
    assert (str(message.state), message.attempts, message.last_error) == ("dead", 2, "KeyError: 'address'")


@pytest.mark.parametrize(
    ("upgrade", "error"),
    [
        (lambda payload: [payload], "bad_arguments: upgrade returned list, not a dict"),
        (lambda payload: payload, "bad_arguments: missing to; unexpected address"),
    ],
)
def test_what_does_not_fit_once_upgraded_is_dead_at_once(
    app: PollConsumer, sandbox: Sandbox, upgrade: Any, error: str
) -> None:
    handle = app.enqueue("mail.send", {"address": "ada"})

    @app.handler("mail.send", upgrade=upgrade)
    def send(to: str) -> None: ...

    sandbox.run()
    assert (sandbox.message(handle).attempts, sandbox.message(handle).last_error) == (1, error)


def test_a_producer_that_knows_the_handler_refuses_what_fits_in_no_form(app: PollConsumer, sandbox: Sandbox) -> None:
    stand_in_for(app)
    given = {"adress": "ada"}
    with pytest.raises(TypeError, match="adress"):
        app.enqueue("send_mail", given)
    assert given == {"adress": "ada"}
    assert sandbox.messages() == []
    check_arguments(calls_of(app).handlers["send_mail"], {"address": "ada"})


def test_a_payload_that_is_looked_at_is_not_changed(app: PollConsumer, sandbox: Sandbox) -> None:
    stand_in_for(app)
    given = {"address": "ada"}
    app.enqueue("send_mail", given)
    assert given == {"address": "ada"}
    assert len(sandbox.messages()) == 1


def test_a_unique_key_is_scoped_by_the_name_that_the_producer_gave(app: PollConsumer, sandbox: Sandbox) -> None:
    calls = stand_in_for(app)
    for name in ("mail.send", "send_mail", "mail.send", "send_mail"):
        app.enqueue(name, {"to": "ada"}, key="ada")
    sandbox.run()
    assert len(calls) == 2


def test_a_dead_letter_of_the_old_name_is_redriven_to_the_handler(app: PollConsumer, sandbox: Sandbox) -> None:
    handle = app.enqueue("send_mail", {"address": "ada"})

    @app.handler("send_mail", max_attempts=1)
    def refuse(address: str) -> None:
        raise OSError(address)

    sandbox.run()
    assert handle.state == "dead"
    del calls_of(app).handlers["send_mail"]
    calls = stand_in_for(app)
    assert app.messages(state="dead", handler="send_mail").redrive_all() == 1
    sandbox.run()
    assert (calls, handle.state) == ([("mail.send", "ada")], "completed")


def test_a_recurrence_of_the_old_name_yields_messages_for_the_handler(app: PollConsumer, sandbox: Sandbox) -> None:
    calls = stand_in_for(app)
    app.recurrences.put("check", handler="send_mail", every="1m", payload={"address": "ada"})
    sandbox.run_for("3m")
    assert set(calls) == {("mail.send", "ada")}
    assert len(calls) >= 3


def test_totals_count_for_the_new_name(app: PollConsumer, sandbox: Sandbox) -> None:
    stand_in_for(app)
    app.enqueue("send_mail", {"to": "ada"})
    app.enqueue("mail.send", {"to": "ada"})
    sandbox.run()
    totals = calls_of(app).ask(lambda store: store.inspector.totals())
    assert totals.settled == {("default", "mail.send", "completed"): 2}
    assert [*totals.durations] == ["mail.send"]


@pytest.mark.parametrize("aliases", ["send_mail", ["a", "a"], None, 3])
def test_aliases_are_a_list_of_different_names(app: PollConsumer, aliases: Any) -> None:
    with pytest.raises(ConfigurationError, match="aliases"):
        app.handler("mail.send", aliases=aliases)


def test_an_invalid_alias_is_refused(app: PollConsumer) -> None:
    with pytest.raises(BadData, match="handler name"):
        app.handler("mail.send", aliases=["send mail"])


@pytest.mark.parametrize("upgrade", ["from_v1", print.__name__, 3])
def test_an_upgrade_is_a_function(app: PollConsumer, upgrade: Any) -> None:
    with pytest.raises(ConfigurationError, match="upgrade"):
        app.handler("mail.send", upgrade=upgrade)


def test_an_upgrade_that_is_async_is_refused(app: PollConsumer) -> None:
    async def upgrade(payload: dict[str, Any]) -> dict[str, Any]:
        return payload

    wrong: Any = upgrade
    with pytest.raises(ConfigurationError, match="upgrade"):
        app.handler("mail.send", upgrade=wrong)


def test_an_alias_is_no_other_handlers_name(app: PollConsumer) -> None:
    stand_in_for(app)
    with pytest.raises(ConfigurationError, match="handler registered twice: send_mail"):

        @app.handler("send_mail")
        def send() -> None: ...

    with pytest.raises(ConfigurationError, match=r"handler registered twice: mail\.send"):

        @app.handler("other", aliases=["mail.send"])
        def other() -> None: ...

    assert "other" not in calls_of(app).handlers


def test_check_names_the_aliases(site: Site) -> None:
    handler = "@app.handler('mail.send', aliases=['send_mail'])\ndef send(to: str) -> None: ...\n"
    (site.directory / "handlers.py").write_text(
        f"from pollconsumer import PollConsumer\napp = PollConsumer()\n{handler}"
    )
    report = site.json("check")
    assert report["aliases"] == {"send_mail": "mail.send"}
    assert report["handlers"] == ["mail.send"]
    assert "alias send_mail" in site.command("check").stdout


def test_a_process_of_its_own_handles_messages_of_the_old_name(site: Site) -> None:
    handler = (
        "@app.handler('mail.send', aliases=['send_mail'], isolation='process',"
        " upgrade=lambda payload: {'to': payload['address']})\ndef send(to: str) -> str: return to\n"
    )
    (site.directory / "handlers.py").write_text(
        f"from pollconsumer import PollConsumer\napp = PollConsumer()\n{handler}"
    )
    sent = site.enqueue("send_mail", address="ada")
    site.drain()
    assert site.json("status", sent)["result"] == "ada"
    assert 'handler="mail.send",outcome="completed"} 1' in site.command("metrics").stdout
