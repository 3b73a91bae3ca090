"""The service: a recurrence for each check of checks.toml, and a handler that sends mail.

A handler may run twice for one occurrence, if its launch is killed. The table keeps the first run's row, and the e-mail
is enqueued once: its id names the change that it reports.
"""

from __future__ import annotations

import smtplib
from email.message import EmailMessage
from email.utils import localtime
from pathlib import Path
from typing import TYPE_CHECKING

from pollconsumer import Backoff, PollConsumer

from .declared import read
from .probes import look
from .results import Results

if TYPE_CHECKING:
    from datetime import datetime

    from .declared import Check

DECLARED = read(Path(__file__).parent.with_name("checks.toml"))
LOGGING = 30.0
"""Seconds beyond the check's own timeout, which normally ends it."""
SMTP_TIMEOUT = 10.0

app = PollConsumer()
results = Results(DECLARED.log)


def recur(check: Check) -> None:
    """Register ``check`` with its period, without overlap."""

    longest = check.timeout + LOGGING

    @app.every(check.every, name=check.name, enabled=check.enabled, overlap="skip", timeout=longest)
    def perform_check(occurrence: datetime) -> None:
        perform(check, occurrence)


def perform(check: Check, due: datetime) -> None:
    """Probe, record the result, and send an e-mail when it differs from the one before."""
    occurrence = f"{due:%Y-%m-%d %H:%M:%S}"
    seen = results.find(check.name, occurrence)
    if seen is None:
        seen = look(check)
        results.add(check.name, occurrence, seen)
    if check.notify and seen.ok != results.was_ok_before(check.name, occurrence):
        change = f"{check.name}.{due:%Y%m%dT%H%M%S}"
        subject = f"{check.name}: {'well again' if seen.ok else 'trouble'}"
        body = f"{subject}, as of {occurrence} UTC: {seen.detail}\n\n{check.kind}: {check.query or check.target}\n"
        mail.using(id=change).enqueue(to=", ".join(check.notify), subject=subject, body=body, change=change)


@app.handler("mail", max_attempts=20, retry=Backoff(first="10s", factor=2, most="10m"), timeout="1m")
def mail(to: str, subject: str, body: str, change: str) -> None:
    """Retries carry the same Message-ID, by which mail programs detect duplicates."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = DECLARED.sender, to, subject
    message["Date"], message["Message-ID"] = localtime(), f"<{change}@checks>"
    message.set_content(body)
    host, _, port = DECLARED.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port), timeout=SMTP_TIMEOUT) as smtp:
        smtp.send_message(message)


@app.every("17 3 * * *")
def forget() -> None:
    """Delete old rows."""
    results.forget(DECLARED.keep_days)


for declared in DECLARED.checks:
    recur(declared)
