"""``message.change`` and ``reschedule --priority --payload``: what waits gets another priority, or payload."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pollconsumer import BadData, PollConsumer

if TYPE_CHECKING:
    from pollconsumer.testing import Sandbox
    from tests.site import Site


def test_what_waits_gets_another_priority_and_payload(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[str] = []

    @app.handler("mail")
    def mail(to: str) -> None:
        seen.append(to)

    first, last = mail.enqueue("a@b"), mail.using(in_="1h").enqueue("c@d")
    last.change(priority=-5)
    app.message(first.id).change(payload={"to": "e@f"})
    last.reschedule(in_=0)
    sandbox.run()
    assert seen == ["c@d", "e@f"]
    with pytest.raises(BadData, match="it is completed already"):
        first.change(priority=1)


def test_the_payload_is_compared_with_the_handlers_parameters(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("mail")
    def mail(to: str, times: int = 1) -> None: ...

    handle = mail.enqueue("a@b")
    for payload in ({}, {"to": "a", "cc": "b"}, ["to"], {"to": object()}):
        with pytest.raises(TypeError):
            handle.change(payload=payload)  # type: ignore[arg-type]  # that is what is refused
    with pytest.raises(TypeError, match="change needs priority or payload"):
        handle.change()
    with pytest.raises(BadData, match="priority: 5000"):
        handle.change(priority=5000, payload={"to": "c"})
    assert handle.status().payload == {"to": "a@b"}
    unknown = app.enqueue("of.another.program", {"x": 1}, queue="theirs")
    unknown.change(payload={"whatever": [1]})
    assert unknown.status().payload == {"whatever": [1]}
    assert len(sandbox.messages()) == 2


def test_asyncio_programs_change_what_waits(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("mail")
    def mail(to: str) -> None: ...

    async def change() -> None:
        handle = await mail.enqueue_async("a@b")
        await handle.change_async(priority=3)
        await handle.change_async(payload={"to": "c@d"})
        with pytest.raises(TypeError, match="change needs"):
            await handle.change_async()

    asyncio.run(change())
    (found,) = sandbox.messages()
    assert (found.payload, found.row.priority) == ({"to": "c@d"}, 3)


def test_the_command_line_changes_what_waits(site: Site) -> None:
    message = site.enqueue("record", "--in", "1h", name="a")
    assert site.command("reschedule", message, "--priority", "-3").stderr == ""
    assert site.command("reschedule", message, "--payload", '{"name": "b"}', "--in", "0").stderr == ""
    shown = site.json("status", message)
    assert (shown["priority"], shown["payload"], shown["state"]) == (-3, {"name": "b"}, "ready")
    refused = site.command("reschedule", message, "--payload", '{"nam": "b"}')
    assert (refused.returncode, refused.stderr.count("\n")) == (65, 1)
    elsewhere = site.enqueue("elsewhere", "--queue", "other", "--in", "1h")
    unknown = site.command("reschedule", elsewhere, "--payload", "{}")
    assert unknown.stderr.endswith("; give the configuration that has it, with --config\n")
    assert site.command("reschedule", message).stderr.startswith("pollconsumer: error: nothing to change; give")
    site.drain()
    assert site.notes() == ["b"]
    late = site.command("reschedule", message, "--priority", "1")
    assert (late.returncode, late.stderr) == (
        65,
        f"pollconsumer: error: cannot change: {message}; it is completed already\n",
    )
