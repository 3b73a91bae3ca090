"""Work that takes days, in real launches: in functions, coroutines and processes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.site import Site

FLOWS = """
from pollconsumer import Context

def charge(name):
    note(f"charge {name}")
    return {"receipt": name}

async def charge_soon(name):
    return charge(name)

def flow(name: str, context: Context):
    receipt = context.step("charge", charge, name)
    context.sleep("50ms")
    approved = context.wait_for("approved", timeout="1h")
    context.step("ship", note, f"ship {name}")
    return [context.attempt, receipt, approved]

app.handler("function")(flow)
app.handler("process", isolation="process")(flow)

@app.handler("coroutine")
async def flow_soon(name: str, context: Context):
    receipt = await context.step_async("charge", charge_soon, name)
    context.sleep("50ms")
    approved = context.wait_for("approved", timeout="1h")
    await context.step_async("ship", note, f"ship {name}")
    return [context.attempt, receipt, approved]
"""


@pytest.mark.parametrize("kind", ["function", "coroutine", "process"])
def test_a_flow_sleeps_waits_and_goes_on(site: Site, kind: str) -> None:
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(FLOWS)
    message = site.enqueue(kind, name="a")
    done = site.drain("--linger", "1s")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    waiting = site.json("status", message)
    assert (waiting["state"], waiting["attempts"], waiting["awaits"]) == ("scheduled", 0, "approved")
    assert [step["name"] for step in waiting["steps"]] == ["charge", "sleep", "approved"]
    assert (waiting["steps"][0]["result"], waiting["steps"][0]["until"]) == ({"receipt": "a"}, None)
    assert "awaits" in site.command("status", message).stdout
    assert site.command("signal", message, "approved", '{"by":"ann"}').returncode == 0
    assert site.drain().returncode == 0
    ended = site.json("status", message)
    assert (ended["state"], ended["result"]) == ("completed", [1, {"receipt": "a"}, {"by": "ann"}])
    assert (ended["steps"], ended["signals"]) == ([], [])
    assert site.notes() == ["charge a", "ship a"]


def test_a_signal_is_refused_that_cannot_be_taken(site: Site) -> None:
    message = site.enqueue("record", "--in", "1h", name="a")
    assert site.command("signal", message, "approved").returncode == 0
    (sent,) = site.json("status", message)["signals"]
    assert (sent["name"], sent["value"]) == ("approved", None)
    for arguments, code, said in (
        ((message, "approved", "2"), 65, "signal sent before: approved; the first one holds"),
        ((message, "other", "{"), 65, "VALUE: {; JSON, as in"),
        ((message, "a#2"), 65, "signal name: 'a#2'"),
        (("nobody", "approved"), 66, "no such message: nobody"),
    ):
        done = site.command("signal", *arguments)
        assert (done.returncode, done.stdout) == (code, "")
        assert f"pollconsumer: error: {said}" in done.stderr
    assert site.command("cancel", message).returncode == 0
    done = site.command("signal", message, "late")
    assert (done.returncode, "it is cancelled already" in done.stderr) == (65, True)
