"""What a handler does in its process is not seen by the next message, and neither silences nor ends a launch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.site import PATIENCE

if TYPE_CHECKING:
    from tests.site import Site

HANDLERS = '''
import asyncio, decimal, os, sys, warnings
from contextvars import ContextVar
from pathlib import Path
from pollconsumer import Context, PollConsumer

app = PollConsumer()
tenant = ContextVar("tenant", default="none")
tenant.set("imported")
decimal.getcontext().prec = 20  # so that the launch's context has one, which can be changed

@app.on_launch
def launch() -> None:
    tenant.set("launched")

def note(what):
    descriptor = os.open(Path(__file__).parent / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{what}\\n".encode())
    os.close(descriptor)

def change():
    """Returns what it found."""
    context = decimal.getcontext()
    found = f"{tenant.get()} {context.prec} {bool(context.flags[decimal.Inexact])}"
    tenant.set("mine")
    context.prec = 3
    decimal.Decimal(1) / 3
    warnings.simplefilter("error")  # the process's: later messages have it
    return found

@app.handler
def plain() -> None:
    note(change())

@app.handler(timeout="60s")
def limited() -> None:
    note(change())

@app.handler
def takes(context: Context) -> None:
    note(change())

@app.handler(isolation="process")
def alone() -> None:
    note(change())

@app.handler
async def turns() -> None:
    note(change())

@app.handler(timeout="60s")
async def awaits() -> None:
    before = change()
    await asyncio.sleep(0.001)
    assert (tenant.get(), decimal.getcontext().prec) == ("mine", 3)
    note(before)

@app.handler(max_attempts=1)
def fails() -> None:
    raise ValueError("no")

@app.on_dead
def dead(context, error) -> None:
    note(change())
'''
NAMES = ["plain", "limited", "takes", "turns", "awaits", "fails"]
SANDBOX = f"""
import handlers
from pollconsumer.testing import Sandbox
handlers.launch()
with Sandbox(handlers.app) as sandbox:
    for handler in {NAMES * 2}:
        handlers.app.enqueue(handler)
    sandbox.run()
"""


@pytest.mark.parametrize("concurrency", [1, 2])
def test_context_variables_are_a_messages_own(site: Site, concurrency: int) -> None:
    """Decimal's context among them. The fourth of each is handled in the quick pass, where there is one."""
    (site.directory / "handlers.py").write_text(HANDLERS)
    lines = "".join(f'{{"handler": "{name}"}}\n' for name in [*NAMES, "alone"] for _ in range(4))
    (site.directory / "messages").write_text(lines)
    assert site.command("enqueue", "--ndjson", "messages").returncode == 0
    done = site.drain("--concurrency", str(concurrency))
    assert done.returncode == 0, done.stderr
    assert sorted(site.notes()) == ["imported 20 False"] * 4 + ["launched 20 False"] * 4 * len(NAMES)


def test_context_variables_are_a_messages_own_in_a_sandbox(site: Site) -> None:
    (site.directory / "handlers.py").write_text(HANDLERS)
    program = site.start_program([sys.executable, "-c", SANDBOX])
    program.communicate(timeout=PATIENCE)
    assert site.notes() == ["launched 20 False"] * 2 * len(NAMES)
