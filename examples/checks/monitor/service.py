"""The handlers: a check, an e-mail, and the forgetting of old results."""

from __future__ import annotations

import smtplib
from email.message import EmailMessage
from email.utils import localtime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollconsumer import Backoff, Context, PollConsumer

from .checks import LONGEST, Check
from .declared import read
from .probes import look
from .results import Results

if TYPE_CHECKING:
    from datetime import datetime

    from .probes import Seen

DECLARED = read(Path(__file__).parent.with_name("monitor.toml"))
LOGGING = 30.0
"""Seconds beyond the check's own timeout, which normally ends it."""
SMTP_TIMEOUT = 10.0

app = PollConsumer()
results = Results(DECLARED.log)


@app.handler("check", timeout=LONGEST + LOGGING)
def perform_check(context: Context, **payload: Any) -> dict[str, Any]:
    """Probe, record the result, and send an e-mail, together with the completion, when it is another than before."""
    check, due, before = Check(**payload), context.occurrence, context.previous
    assert due is not None
    seen = recorded(check, due)
    was_ok = before is None or before.result["ok"]
    if check.notify and seen.ok != was_ok:
        change = f"{check.name}.{due:%Y%m%dT%H%M%S}"
        subject = f"{check.name}: {'well again' if seen.ok else 'trouble'}"
        said = f"{subject}, as of {due:%Y-%m-%d %H:%M:%S} UTC: {seen.detail}"
        body = f"{said}\n\n{check.kind}: {check.query or check.target}\n"
        context.enqueue("mail", {"to": check.notify, "subject": subject, "body": body, "change": change}, id=change)
    return {"ok": seen.ok, "detail": seen.detail}


def recorded(check: Check, due: datetime) -> Seen:
    """What a check has seen at an instant: as recorded by an attempt that died later, or now."""
    occurrence = f"{due:%Y-%m-%d %H:%M:%S.%f}"
    seen = results.find(check.name, occurrence)
    if seen is None:
        seen = look(check)
        results.add(check.name, occurrence, seen)
    return seen


@app.handler("mail", max_attempts=20, retry=Backoff(first="10s", factor=2, most="10m"), timeout="1m")
def mail(to: str, subject: str, body: str, change: str) -> None:
    """Retries carry the same Message-ID, by which mail programs detect duplicates."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = DECLARED.sender, to, subject
    message["Date"], message["Message-ID"] = localtime(), f"<{change.replace(':', '.').replace('@', '.')}@checks>"
    message.set_content(body)
    host, _, port = DECLARED.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port), timeout=SMTP_TIMEOUT) as smtp:
        smtp.send_message(message)


@app.every("17 3 * * *")
def forget() -> None:
    """Delete old rows."""
    results.forget(DECLARED.keep_days)
