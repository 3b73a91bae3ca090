"""Reports findings to people, by a request and by mail: each finding once when it begins, and once when it ends.

The store has a field for each reported finding, so `doctor` and launches on all hosts together report each finding
once. They look and report one after the other. What one looker (a configuration, or a machine) finds may not exist for
another. So a finding ends when the looker that found it last no longer finds it, or has not looked for an hour."""

from __future__ import annotations

import json
import os
import quopri
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any, NamedTuple

from pollconsumer.core import json_values
from pollconsumer.core.errors import PollConsumerError, StoreUnreachable
from pollconsumer.core.events import AttemptFailed, Event, MessageCompleted, MessageStopped
from pollconsumer.core.launcher import UNLEARNED_EXIT
from pollconsumer.core.notation.instants import LAST_MILLISECOND, iso
from pollconsumer.core.notation.text import printable
from pollconsumer.core.spans import format_duration
from pollconsumer.interface.configured_store import opener_of
from pollconsumer.interface.logs.logs import PERSISTENT, about, log
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.names import PREFIX
from pollconsumer.interface.settings.values import duration_alarms
from pollconsumer.runtime.launch.pings import ANSWER_WITHIN, Ping, delivered, extended, host_of
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.store import Store
from pollconsumer.watching.examiner import look
from pollconsumer.watching.facts import Finding

ONE_AT_A_TIME_MS = 15_000
"""If a process is killed while it looks and reports, another one may do so after so many milliseconds."""
LEAST, TO_RECORD = 0.2, 0.1
"""Seconds that must be left to send another request, and further seconds in which its outcome is stored."""
AGAIN_AFTER_MS = 300_000
"""A finding that begins again within so many ms after its end is not reported again. A finding that comes and goes with
each launch is no news."""
LAPSED_AFTER_MS = 3_600_000
"""A finding ends so many ms after it was found last, if its looker has not looked since."""
RAREST = 64
"""After failures, reporting is tried at the second, fourth, eighth … look, and finally at each 64th: a request that
nobody answered in time may have been delivered."""
OF_A_MACHINE = ("clock_skew", "owner", "spool_waits", "spool_refused")
MOST_CHARACTERS, MOST_IN_A_TITLE = 1500, 200
"""Maximum length of a text, and of a title. Discord takes 2,000 characters, ntfy 4,096 bytes."""
MIME = "MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable"
CARD = "application/vnd.microsoft.card.adaptive"


class ReportedFinding(NamedTuple):
    """A finding that was reported. In epoch ms of the server's clock: ``since``: when it was reported; ``seen``: when
    it was found last; ``ended``: when its end was reported, 0 until then. ``by``: the looker that found it last."""

    finding: Finding
    since: int
    seen: int
    by: str
    ended: int = 0

    @classmethod
    def read(cls, stored: bytes) -> ReportedFinding | None:
        """The finding that is stored as a JSON list; None if ``stored`` is corrupt."""
        with suppress(ValueError, TypeError):
            *finding, since, seen, by, ended = json_values.parse(stored)
            if 0 <= since <= LAST_MILLISECOND:
                return cls(Finding(*finding), since, int(seen), by, int(ended))
        return None

    def texts(self, now: int, namespace: str, page: str | None) -> dict[str, str | None]:
        """The texts and fields of the report for people and programs. ``page``: the dashboard's address, if known."""
        what, fields = self.finding.what, self.finding._asdict()
        line = f"{namespace}: {self.finding}"
        if self.ended:
            line = f"{namespace}: resolved: {what} (for {format_duration(max(0, now - self.since) / 1000)})"
            what, fields = f"resolved: {what}", fields | {"value": None, "fix": None}
        text = printable(line)[:MOST_CHARACTERS] + (f"\n{page}" if page else "")
        occasion = {"state": "ended" if self.ended else "began", "since": iso(self.since), "page": page}
        title = printable(f"{namespace}: {what}")[:MOST_IN_A_TITLE]
        return {"title": title, "text": text, "namespace": namespace, **occasion, **fields}


def form_of(url: str) -> str:
    """The form of request that the host of ``url`` expects."""
    host = f".{host_of(url)}"
    if host.startswith(".ntfy."):
        return "ntfy"
    if host.endswith((".hooks.slack.com", ".hooks.slack-gov.com")):
        return "slack"
    if host.endswith((".discord.com", ".discordapp.com")):
        return "discord"
    teams = (".webhook.office.com", ".logic.azure.com", ".powerplatform.com", ".powerautomate.com")
    return "teams" if host.endswith(teams) else "json"


def request_of(url: str, texts: Mapping[str, str | None]) -> Ping:
    """The request to ``url`` with the ``texts`` of a finding, in the form that its host expects."""
    text, body = texts["text"] or "", dict[str, Any](texts)
    match form_of(url):
        case "ntfy":
            given = {"title": texts["title"], "click": texts["page"]}
            return Ping(extended(url, {name: value for name, value in given.items() if value}), text.encode())
        case "slack":  # Slack interprets <!channel> and the like
            body = {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}
        case "discord":
            body = {"content": text, "allowed_mentions": {"parse": []}}
        case "teams":
            block = {"type": "TextBlock", "text": text.replace("\n", "\n\n"), "wrap": True}
            card = {"type": "AdaptiveCard", "version": "1.4", "body": [block]}
            body = {"type": "message", "attachments": [{"contentType": CARD, "contentUrl": None, "content": card}]}
    return Ping(url, json.dumps(body).encode(), content="application/json")


def send_request(url: str, texts: Mapping[str, str | None], within: float) -> str | None:
    """Send the request. Returns None, or why it failed: a text that shows no more of ``url`` than its host."""
    failed = delivered(request_of(url, texts), within)
    return failed and f"{host_of(url)}: {failed.reason}"


def send_mail(address: str, texts: Mapping[str, str | None], within: float) -> str | None:
    """Send a mail. Wait at most ``within`` seconds for ``sendmail``. Returns why it failed, or None."""
    program = shutil.which("sendmail", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/lib")
    if program is None:
        return "mail: no program sendmail is here: install one, or unset doctor.mail"
    title = (texts["title"] or "").encode("ascii", "backslashreplace").decode()
    head = f"To: {address}\nSubject: {title}\nAuto-Submitted: auto-generated\n{MIME}\n\n"
    mail = head.encode() + quopri.encodestring(f"{texts['text']}\n".encode())
    given = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}  # secrets are among them
    words = [program, "-i", "-t"]
    try:
        process = Popen(words, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, env=given, start_new_session=True)
        process.communicate(mail, within)
    except TimeoutExpired:
        return None
    except OSError as error:
        return f"mail: {program}: {error.strerror}"
    return f"mail: {program} ended with {process.returncode}" if process.returncode else None


def changes(
    found: Mapping[str, Finding], reported: Mapping[str, ReportedFinding], looker: Callable[[Finding], str], now: int
) -> Iterator[tuple[str, ReportedFinding | None, bool]]:
    """What changes in the store now that these findings were ``found``. ``looker``: returns who looks for a finding.
    Yields each finding's name; what to store under it, None to delete it; and whether to report it to people first."""
    for name, finding in found.items():
        known, by = reported.get(name), looker(finding)
        if known is not None and not known.ended:
            yield name, known._replace(seen=now, by=by), False
        elif known is None or not 0 <= now - known.ended < AGAIN_AFTER_MS:  # GUARD a finding that comes and goes
            yield name, ReportedFinding(finding, now, now, by), True
    for name, known in ((name, known) for name, known in reported.items() if name not in found):
        if known.ended:
            if not 0 <= now - known.ended < AGAIN_AFTER_MS:
                yield name, None, False
        # GUARD what another configuration finds
        elif known.by == looker(known.finding) or not 0 <= now - known.seen < LAPSED_AFTER_MS:
            yield name, known._replace(ended=now), True


class FindingTeller:
    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._wire, self._key = settings, store.wire, store.keys.control("findings")
        self._turn = store.keys.control("telling")
        self._unrecorded: list[str] = []
        """Why the store cannot record what is reported; empty if it can."""
        self._who = f"{settings.config or settings.directory} {','.join(settings.consumer.queues)}".rstrip()

    @contextmanager
    def turn(self, *, unrecorded: bool = False) -> Iterator[bool]:
        """Yield whether this process may report: the settings name a channel, and no other process reports until the
        block ends. Look for findings within the block, since another process may have reported earlier ones.

        ``unrecorded``: report also if the store cannot write, since it is full or lacks replicas. What was not reported
        before is then reported at each look. Without it, StoreUnreachable is raised."""
        turn = "SET", self._turn, "1", "NX", "PX", ONE_AT_A_TIME_MS
        try:
            is_ours = self._settings.reports_findings and self._wire.command(*turn) is not None
        except StoreUnreachable as error:
            if not unrecorded:
                raise
            is_ours, self._unrecorded = True, [f"not recorded: {error}"]  # if the store is away, the look raises that
        try:
            yield is_ours
        finally:
            if is_ours:
                self._record("DEL", self._turn)

    def _record(self, *command: str) -> int:
        """The store's answer; 0 if the store can record nothing."""
        return int(self._wire.command(*command)) if not self._unrecorded else 0

    def report(self, findings: Sequence[Finding], now: int, left: Callable[[], float]) -> list[str]:
        """Report what is new in ``findings``, which were found at ``now``, within ``left()`` seconds. The rest is
        reported at the next look. Returns why findings were not delivered, or not recorded."""
        fields = iter(self._wire.command("HGETALL", self._key))
        stored = {
            name.decode("utf-8", "replace"): ReportedFinding.read(text)
            for name, text in zip(fields, fields, strict=True)
        }
        reported = {name: each for name, each in stored.items() if each is not None}
        found = {f"{each.name}\n{printable(each.what)}": each for each in findings}
        looks, is_over, problems = 0, False, [*self._unrecorded]
        for name, each, is_new in changes(found, reported, self._looker, now):
            if each is None:
                self._record("HDEL", self._key, name)
                continue
            if is_new:
                if is_over or left() < LEAST + TO_RECORD:
                    continue
                looks = looks or self._record("HINCRBY", self._key, "looks", "1")
                # GUARD ways that fail are not tried at each look
                is_postponed = looks & (looks - 1) and looks % RAREST
                failures = [] if is_postponed else [*self._deliver(each, now, left)]
                problems += filter(None, failures)
                if is_over := None not in failures:
                    continue
            self._record("HSET", self._key, name, json.dumps([*each.finding, *each[1:]]))
            if is_new:
                self._record("HDEL", self._key, "looks")
        return [f"alarms: {problem}" for problem in dict.fromkeys(problems)]

    def _deliver(self, reported: ReportedFinding, now: int, left: Callable[[], float]) -> Iterator[str | None]:
        """Send the finding by each channel of the settings: request, mail. Yields for each channel None if it accepted
        the finding, else why not."""
        doctor, texts = (
            self._settings.doctor,
            reported.texts(now, self._settings.namespace, self._settings.dashboard.url),
        )
        for address, send in ((doctor.url, send_request), (doctor.mail, send_mail)):
            within = min(ANSWER_WITHIN, left() - TO_RECORD)
            if address is not None and within >= LEAST:
                log.info("telling: %s", texts["title"])
                yield send(address, texts, within)

    def _looker(self, finding: Finding) -> str:
        return f"{self._who} {socket.gethostname()}" if finding.name in OF_A_MACHINE else self._who


class LaunchAlarms:
    """What a launch does for alarms: it stores handling durations beyond the limits, and reports findings."""

    def __init__(self, settings: Settings, emit: Callable[[Event], None], *, shows_completed: bool) -> None:
        """``shows_completed``: whether ``emit`` also gets events of completed messages."""
        self._settings, self._emit, self._shows_completed = settings, emit, shows_completed
        self._limits = duration_alarms(settings.alarms.handlers)
        self._outliers: dict[str, tuple[float, str]] = {}
        """Alarm and handler → the last duration beyond that alarm's limit, in seconds, and the message's id."""

    def listen(self, event: Event) -> None:
        is_completed = isinstance(event, MessageCompleted)
        if isinstance(event, MessageCompleted | AttemptFailed | MessageStopped):
            for limit, seconds in self._limits.get(event.handler, {}).items():
                if event.took > seconds if limit == "slower_than" else is_completed and event.took < seconds:
                    self._outliers[f"{limit}\n{event.handler}"] = event.took, event.id
        if self._shows_completed or not is_completed:
            self._emit(event)

    def report(self, until_cut_off: Callable[[], float]) -> None:
        """Report findings at the exit, in the time that a launch may take to exit, before the exit is cut off."""
        until, problems = time.monotonic() + UNLEARNED_EXIT, list[str]()

        def left() -> float:
            return max(0.0, min(until_cut_off(), until - time.monotonic()))  # GUARD an exit is not much longer

        try:
            with closing(opener_of(self._settings, warn=lambda _: None).bare_wire(lambda: Budget(left()))) as wire:
                wire.skips_lost = True
                store = Store(wire, self._settings.namespace)
                now = store.inspector.now() if self._outliers else 0
                for name, outlier in self._outliers.items():
                    wire.command("HSET", store.keys.control("findings"), name, json.dumps([now, *outlier]))
                teller = FindingTeller(self._settings, store)
                with teller.turn() as is_ours:
                    if is_ours:
                        facts, found = look(self._settings, store)
                        problems = teller.report(found, facts.now, left)
        except Exception as error:  # a bug of ours must not change the exit code; its text may contain a secret
            problems = [f"alarms: {error if isinstance(error, PollConsumerError) else type(error).__name__}"]
        for problem in problems:
            log.warning("%s", problem, extra=about(problem, kind=PERSISTENT))
