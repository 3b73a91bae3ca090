"""Launches on demand: a web site of two processes enqueues, and starts launches; cron starts one each quarter of an
hour. Now and then a launch is killed."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING, Any

from tests.cron.daemon import CronPlace
from tests.cron.place import BIN, Unfit
from tests.cron.produce import KINDS
from tests.cron.report import Report, check_mail, check_messages, read_notes, spread
from tests.cron.scenarios import MINUTE, QUIET, Kill, finish, say_kill, sleep_until, under_cron, wait_for
from tests.failovers.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.cron.place import Place
    from tests.cron.report import Note

SCHEDULE = "*/15 * * * *"
WORKERS, THREADS = 2, 4
TOKEN = "the-token-of-launches"
KILL_AFTER = 0.2
"""Seconds from the start or the end of a handler to the kill of its launch."""
HANDLED_WITHIN, LISTENS_WITHIN, ANSWERS_WITHIN = 100.0, 30.0, 60.0
MOST_LAUNCHES = 2000


def demand(minutes: int, by: str, variables: dict[str, str], *, keep: bool, pace: float, seed: int) -> list[str]:
    """A message each ``pace`` seconds on average. ``by``: ``process``, or ``url`` for the site's own endpoint. Returns
    the invariants that failed."""
    for module in ("flask", "gunicorn"):
        if find_spec(module) is None:
            raise Unfit(f"needs {module}: pip install {module}")
    report, port = Report(), free_port()
    variables = {**_settings(by, port), **variables}
    with CronPlace("measured", variables=variables, keep=keep) as place:
        place.environment |= variables
        crontab = f"{SCHEDULE} exec {BIN}/pollconsumer run --config {place.config}\n"
        place.cron.install(crontab, {"HOME": str(place.directory), **variables})
        with under_cron(place) as watch, _serving(place, port):
            end = time.time() + minutes * MINUTE
            done = _produce(place, port, end - QUIET, pace, random.Random(seed))
            sleep_until(end)
            ledger = place.ask("launches", "--limit", str(MOST_LAUNCHES))
            finish(report, place, watch, end)
        for kill in done:
            say_kill(report, place, watch, kill)
        check_messages(report, place, set().union(*(kill.messages for kill in done)))
        _say_latency(report, place, done)
        _check_ledger(report, ledger, {kill.pid for kill in done})
        check_mail(report, place, expected=bool(done))
    return report.failures


def _settings(by: str, port: int) -> dict[str, str]:
    """The variables of crontab, site and launches."""
    schedule = {"POLLCONSUMER_CONSUMER__SCHEDULE": SCHEDULE}
    if by == "process":
        return {**schedule, "POLLCONSUMER_CONSUMER__ON_DEMAND": by}
    url = f"http://127.0.0.1:{port}/queue/launch"
    return {**schedule, "POLLCONSUMER_CONSUMER__ON_DEMAND": url, "POLLCONSUMER_WEB__TOKEN": TOKEN}


@contextmanager
def _serving(place: Place, port: int) -> Iterator[None]:
    """The site answers, under gunicorn."""
    options = (f"--workers={WORKERS}", f"--threads={THREADS}", f"--bind=127.0.0.1:{port}", "--log-level=warning")
    server = place.python("gunicorn", *options, "tests.cron.site:site")

    def listens() -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=ANSWERS_WITHIN)
        except OSError as error:
            return isinstance(error, urllib.error.HTTPError)
        return True

    try:
        wait_for(listens, LISTENS_WITHIN, every=0.1)
        yield
    finally:
        server.terminate()
        server.wait()


def _produce(place: Place, port: int, end: float, pace: float, chance: random.Random) -> list[Kill]:
    """Have the site enqueue until ``end``. The launch of each message that lasts is killed: in turn while the handler
    runs, and after it, while the launch waits for messages."""
    done: list[Kill] = []
    killers: list[threading.Thread] = []
    at, lasting = time.time(), KINDS["site"].lasting
    for sequence in itertools.count():
        at += chance.expovariate(1 / pace)
        if at > end:
            break
        sleep_until(at)
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/messages/{sequence}", method="POST")
        urllib.request.urlopen(asked, timeout=ANSWERS_WITHIN).close()
        if sequence % lasting == lasting - 1:
            mark = "end" if len(killers) % 2 else "start"
            killers.append(threading.Thread(target=_kill_launch, args=(place, sequence, mark, done), daemon=True))
            killers[-1].start()
    for killer in killers:
        killer.join()
    return done


def _kill_launch(place: Place, sequence: int, mark: str, done: list[Kill]) -> None:
    """kill -9 of the launch whose handler of a message has started, or ended, if it is still there."""

    def found() -> list[Note]:
        notes = read_notes(place.directory / "handled")
        return [note for note in notes if (note.sequence, note.mark) == (sequence, mark)]

    with suppress(TimeoutError, ProcessLookupError):
        wait_for(lambda: bool(found()), HANDLED_WITHIN)
        time.sleep(KILL_AFTER)
        pid = found()[0].pid
        os.kill(pid, signal.SIGKILL)
        what = "launch that handles" if mark == "start" else "launch that waits"
        done.append(Kill(what, time.time(), pid, frozenset({sequence} if mark == "start" else ())))


def _say_latency(report: Report, place: Place, kills: Sequence[Kill]) -> None:
    """Seconds from enqueue to the handler's first start. Messages that were not started before a kill, and came before
    the next start, are counted apart."""
    starts = [note for note in read_notes(place.directory / "handled") if note.mark == "start"]
    firsts: dict[int, Note] = {}
    of_launches: dict[int, Note] = {}
    for note in starts:
        firsts.setdefault(note.sequence, note)
        of_launches.setdefault(note.pid, note)
    again = [min((note.at for note in starts if note.at > kill.at), default=inf) for kill in kills]
    late = [note for note in firsts.values() if any(note.enqueued < at <= note.at for at in again)]
    others = [note for note in firsts.values() if note not in late]
    report.say("enqueue to handler", spread(note.latency for note in others))
    report.say(
        "  the first message of each launch",
        spread(note.latency for note in of_launches.values() if note in others),
    )
    report.say("delayed by a kill", spread(note.latency for note in late))


def _check_ledger(report: Report, ledger: list[dict[str, Any]], killed: set[int]) -> None:
    """Launches by what started them; those that were not killed ended well."""
    report.say("launches", f"{len(ledger)}: {dict(Counter(entry['platform'] for entry in ledger))}")
    report.say("launches that found the lease held", sum(entry["skipped"] for entry in ledger))
    bad = [
        (entry["pid"], entry["exit_code"])
        for entry in ledger
        if entry["exit_code"] not in {0, None} and entry["pid"] not in killed
    ]
    report.check("launches that failed", bad or 0, holds=not bad)
