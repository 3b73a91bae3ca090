"""A small shop, whose launch leaves a message in every state: with a log, steps, results, a queue that is paused, and
recurrences. What its forms ask for has every kind of parameter."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote

from pollconsumer.core.lifecycle import State

if TYPE_CHECKING:
    from pathlib import Path

HANDLERS = '''
import logging
from typing import Any

from pollconsumer import Context, Fatal, PollConsumer, RetryIn

app = PollConsumer()
log = logging.getLogger("shop.orders")


@app.handler("order.place", queue="orders")
def place(customer: str, lines: list[str], copies: int = 1, express: bool | None = None, note=None,
          context: Context = None) -> dict:
    """Record its steps, and log."""
    log.info("order of %s, %d lines", customer, len(lines))
    print("asking the warehouse at https://warehouse.example.org/api/v2/articles?" + "article=4711&" * 12)
    context.step("reserve", lambda: {"articles": lines})
    context.progress(2, 3, "reserved")
    log.warning("only %d left on stock", 3)
    context.step("charge", lambda: 42.5)
    return {"order": 4711, "lines": lines, "total": 42.5}


@app.handler("report.build_the_yearly_summary_for_all_branches_of_the_company", queue="reports", result_ttl="7d")
def report(year: int, branches: list[str] = [], **others: Any) -> str:
    return "https://reports.example.org/" + "0123456789abcdef" * 8


@app.handler("mail.send", queue="mail", max_attempts=2, retry=["1h"])
def send(to: str, subject: str = "") -> None:
    log.error("no answer of smtp.example.org", exc_info=True)
    raise ConnectionError(f"smtp.example.org refused {to}: 550 5.1.1 " + "mailbox unavailable; " * 8)


@app.handler("mail.verify", queue="mail")
def verify(to: str) -> None:
    raise Fatal(f"{to} is no address")


@app.handler("order.approve", queue="orders")
def approve(order: int, context: Context) -> None:
    print(context.wait_for("approved", timeout="7d"))
'''
CONFIGURATION = """
namespace = "shop"
handlers = ["shop"]

[consumer]
queues = ["orders", "mail", "reports"]

[recurrences.yearly]
handler = "report.build_the_yearly_summary_for_all_branches_of_the_company"
cron = "30 2 1 1 *"
timezone = "Europe/Paris"
payload = { year = 2026, branches = ["Lyon", "Paris"] }
expires = "1d"
headers = { customer = "7" }
"""
LONG_ID = "invoice-2026-11-30-of-the-branch-in-saint-remy-en-bouzemont-saint-genest-et-isson-0000004711"
ORDER = '{"customer": "ada@example.org", "lines": ["lamp", "a very long name of an article, with its colour and size"]}'
REPORT = "report.build_the_yearly_summary_for_all_branches_of_the_company"
COMMANDS = (
    ("enqueue", "order.place", ORDER, "--id", "order", "--header", "customer=7"),
    ("enqueue", "order.place", ORDER.replace("ada", "eve"), "--id", LONG_ID, "--order-key", "customer-7"),
    ("enqueue", "order.approve", '{"order": 4711}', "--id", "approval"),
    ("enqueue", "mail.send", '{"to": "ada@example.org"}', "--id", "mail", "--order-key", "ada"),
    ("enqueue", "mail.send", '{"to": "ada@example.org"}', "--id", "mail-behind-it", "--order-key", "ada"),
    ("enqueue", "mail.verify", '{"to": "nobody"}', "--id", "unverified"),
    ("enqueue", REPORT, '{"year": 2025}', "--id", "report"),
    ("recurrences", "add", "check:orders", "order.approve", '{"order": 1}', "--every", "5m", "--first", "next"),
    ("recurrences", "add", "check:paused", "mail.send", '{"to": "eve"}', "--cron", "*/5 * * * *", "--first", "next"),
    ("run", "--until-empty", "--timeout", "30s"),
    ("recurrences", "pause", "check:paused"),
    ("handler", "pause", "mail.verify"),
    ("queue", "pause", "orders", "--for", "2h"),
    ("enqueue", "order.place", ORDER, "--id", "cancelled"),
    ("cancel", "cancelled"),
    ("enqueue", "order.place", ORDER, "--id", "ready", "--priority", "-3", "--expires", "1d"),
    ("enqueue", "order.place", ORDER, "--id", "later", "--in", "3h", "--key", "once"),
)  # fmt: skip
PAGES = {
    **{f"list-{state}": f"queue?name=orders&state={state}" for state in State},
    "list-mail-dead": "queue?name=mail&state=dead",
    "dead": "dead?queue=mail",
    "message": "message?queue=orders&id=order",
    "message-long": f"message?queue=orders&id={LONG_ID}",
    "message-failed": "message?queue=mail&id=mail",
    "message-asleep": "message?queue=orders&id=approval",
    "message-ready": "message?queue=orders&id=ready",
    "message-ordered": "message?queue=mail&id=mail-behind-it",
    "message-report": "message?queue=reports&id=report",
    "handler": "handler?name=order.place",
    "handler-paused": "handler?name=mail.verify",
    "handler-long": f"handler?name={REPORT}",
    "recurrence": "recurrence?name=yearly",
    "recurrence-paused": f"recurrence?name={quote('check:paused')}",
    "search": "search?q=order",
    "audit": "audit",
    "enqueue": "enqueue",
    "enqueue-order": "enqueue?handler=order.place",
    "enqueue-report": f"enqueue?handler={REPORT}",
    "enqueue-other": "enqueue?handler=other",
    "add": "put",
    "edit": f"put?name={quote('check:orders')}",
}
"""Its pages, and its forms, beside the first page."""


def open_shop(home: Path, store: str, environment: dict[str, str]) -> list[str]:
    """Have a launch handle what there is. Returns the beginning of the shop's commands."""
    (home / "shop.py").write_text(HANDLERS)
    (home / "config.toml").write_text(CONFIGURATION)
    command = [sys.executable, "-m", "pollconsumer", "--config", str(home / "config.toml"), "--store", store]
    for each in COMMANDS:
        done = subprocess.run([*command, *each], env=environment, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr
    return command
