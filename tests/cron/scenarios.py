"""The scenarios: what is done while cron launches, and what must hold afterwards."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from tests.cron.daemon import CronPlace
from tests.cron.place import Place
from tests.cron.report import (
    Report,
    check_latency,
    check_launches,
    check_mail,
    check_messages,
    print_launches,
    read_notes,
    say_coverage,
    spread,
    text,
)
from tests.cron.watch import Watch

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from tests.cron.watch import Process

MINUTE = 60.0
FIRST_WITHIN = 75.0
"""Seconds in which cron must have made its first launch."""
QUIET = 5.0
"""Seconds before the last minute's end at which the producer stops: the last launch still handles what it produced."""
LAST_LAUNCH_WITHIN = 80.0
KILL_AT = 20.0
"""Second of its minute at which something is killed."""
KILL_ROUND = 5
"""Minutes from one round of kills to the next."""
ENQUEUE_AT = 40.0
"""Second of a minute at which packages are enqueued: their handling then spans launches."""
VERIFIED_WITHIN = 600.0
LOOK_EVERY = 0.01


class Kill(NamedTuple):
    """``at`` in seconds since the epoch; ``pid`` 0 where it is the embedded server; ``messages`` that were in
    flight."""

    what: str
    at: float
    pid: int = 0
    messages: frozenset[int] = frozenset()


def latency(launches: int, variables: dict[str, str], *, keep: bool, kind: str = "plain") -> list[str]:
    """A message every 100 ms. ``variables`` go into the crontab; ``kind`` is the producer's argument.

    Returns the invariants that failed.
    """
    report = Report()
    with CronPlace("measured", variables=variables, keep=keep) as place, under_cron(place) as watch:
        begin = first_launch(watch)
        with producing(place, kind):
            sleep_until(begin + launches * MINUTE - QUIET)
        finish(report, place, watch, begin + launches * MINUTE)
        check_messages(report, place, set())
        check_latency(report, place)
        say_coverage(report, place)
        check_launches(report, place, watch, least=launches)
        check_mail(report, place)
        print_launches(place)
    return report.failures


def kills(launches: int, variables: dict[str, str], *, keep: bool) -> list[str]:
    """As latency, with messages that last and scheduled ones; consumer, mover and server are killed in each round."""
    report = Report()
    with CronPlace("measured", variables=variables, keep=keep) as place, under_cron(place) as watch:
        begin = first_launch(watch)
        done: list[Kill] = []
        with producing(place, "mixed"):
            for round_ in range(launches // KILL_ROUND):
                for minute, kill in enumerate((kill_consumer, kill_mover, kill_server), round_ * KILL_ROUND + 1):
                    sleep_until(begin + minute * MINUTE + KILL_AT)
                    done.append(kill(place, watch))
            sleep_until(begin + launches * MINUTE - QUIET)
        finish(report, place, watch, begin + launches * MINUTE)
        for kill_ in done:
            say_kill(report, place, watch, kill_)
        check_messages(report, place, set().union(*(kill_.messages for kill_ in done)))
        check_latency(report, place)
        check_launches(report, place, watch, least=launches, killed={kill_.pid for kill_ in done})
        check_mail(report, place, expected=True)
        print_launches(place)
    return report.failures


def packages(concurrency: int, variables: dict[str, str], *, keep: bool) -> list[str]:
    """Every installed package verified by examples/verify_packages.py. Returns the invariants that failed."""
    report = Report()
    variables = {**variables, "POLLCONSUMER_CONSUMER__CONCURRENCY": str(concurrency)}
    with CronPlace("examples.verify_packages", variables=variables, keep=keep) as place, under_cron(place) as watch:
        sleep_until(first_launch(watch) + ENQUEUE_AT)
        enqueued_at = time.time()
        code = place.python("examples.verify_packages").wait()
        report.check("enqueueing exited", code, holds=code == 0)
        accepted = place.count("ready", "reserved", "scheduled", "completed", "dead")
        verdicts = place.directory / "verify_packages.sqlite3"
        wait_for(lambda: place.unfinished() == 0, VERIFIED_WITHIN, every=5.0)
        finish(report, place, watch, time.time())
        with closing(sqlite3.connect(verdicts)) as database:
            counts = "count(*), sum(ok), sum(changed), sum(missing), sum(seconds), max(times_handled), max(finished_at)"
            done, ok, changed, missing, seconds, most, last = database.execute(
                f"SELECT {counts} FROM verdicts"
            ).fetchone()
            slowest = database.execute("SELECT package, seconds FROM verdicts ORDER BY seconds DESC LIMIT 3").fetchall()
        report.say("concurrency", concurrency)
        report.check("packages verified", f"{done} of {accepted}", holds=done == accepted > 0)
        report.check("most times handled", most, holds=most == 1)
        report.say("files ok, changed, missing", f"{ok}, {changed}, {missing}")
        report.say("from enqueueing to the last verdict", text(last - enqueued_at))
        report.say("handling, added up", text(seconds))
        report.say("slowest", ", ".join(f"{package} {text(took)}" for package, took in slowest))
        check_launches(report, place, watch, least=2, may_overrun=True)
        check_mail(report, place)
        print_launches(place)
    return report.failures


@contextmanager
def under_cron(place: CronPlace) -> Iterator[Watch]:
    """Cron runs, and its launches are watched; in the end none is left."""
    watch = Watch()
    watch.start()
    place.cron.start()
    try:
        yield watch
    finally:
        place.cron.stop()
        watch.look()
        for process in watch.alive():
            os.kill(process.pid, signal.SIGTERM)
        wait_for(lambda: not watch.alive(), LAST_LAUNCH_WITHIN)
        watch.stop()


@contextmanager
def producing(place: Place, kind: str = "plain") -> Iterator[subprocess.Popen[bytes]]:
    """A producer runs. RuntimeError where it did not last."""
    producer = place.python("tests.cron.produce", str(place.directory / "accepted"), kind)
    try:
        yield producer
    finally:
        producer.terminate()
        if producer.wait():
            raise RuntimeError(f"the producer exited {producer.returncode}")


def first_launch(watch: Watch) -> float:
    """Wait for it. Returns the minute, in seconds since the epoch, that it was launched for."""
    return alive(watch, "consumer").started // MINUTE * MINUTE


def alive(watch: Watch, role: str) -> Process:
    """The latest launch of a role, once there is one. TimeoutError where cron makes none."""
    wait_for(lambda: bool(watch.alive(role)), FIRST_WITHIN)
    return watch.alive(role)[-1]


def finish(report: Report, place: CronPlace, watch: Watch, end: float) -> None:
    """No launch any more after ``end``; let those that run end by themselves, and handle what is left."""
    sleep_until(end - 1)
    report.check("cron ended by itself", place.cron.ended(), holds=place.cron.ended() is None)
    place.cron.stop()
    wait_for(lambda: not watch.alive(), LAST_LAUNCH_WITHIN)
    watch.stop()
    left = place.unfinished()
    trouble = place.drain()
    report.say("left when cron was stopped", left)
    report.check("launches by hand, to drain", trouble.strip() or "quiet", holds=not trouble)
    dead = [f"{message['id']}: {message['last_error']}" for message in place.ask("list", "--state", "dead")]
    report.check("dead letters", dead or 0, holds=not dead)


def kill_consumer(place: CronPlace, watch: Watch) -> Kill:
    """kill -9 in the middle of a message that lasts."""
    consumer = alive(watch, "consumer")

    def in_flight(since: float) -> frozenset[int]:
        """Messages that it has started at least ``since`` seconds ago, and not ended."""
        notes = [note for note in read_notes(place.directory / "handled") if note.pid == consumer.pid]
        started = {note.sequence for note in notes if note.mark == "start" and time.time() - note.at >= since}
        return frozenset(started - {note.sequence for note in notes if note.mark == "end"})

    wait_for(lambda: bool(in_flight(since=5 * LOOK_EVERY)), MINUTE / 4)
    os.kill(consumer.pid, signal.SIGKILL)
    at = time.time()
    wait_for(lambda: consumer.ended is not None, QUIET)
    return Kill("consumer", at, consumer.pid, in_flight(since=0.0))


def kill_mover(_: CronPlace, watch: Watch) -> Kill:
    """kill -9 of the launch that moves."""
    mover = alive(watch, "mover")
    os.kill(mover.pid, signal.SIGKILL)
    return Kill("mover", time.time(), mover.pid)


def kill_server(place: CronPlace, _: Watch) -> Kill:
    """kill -9 of the embedded server."""
    pid = place.ask("store", "status")["pid"]
    os.kill(pid, signal.SIGKILL)
    return Kill("server", time.time())


def say_kill(report: Report, place: CronPlace, watch: Watch, kill: Kill) -> None:
    """What came of it."""
    at = datetime.fromtimestamp(kill.at).astimezone()
    report.say(f"{kill.what} killed", f"{at:%H:%M:%S}" + (f", pid {kill.pid}" if kill.pid else ""))
    starts = [note for note in read_notes(place.directory / "handled") if note.mark == "start"]
    after = [note.at for note in starts if note.at > kill.at]
    if after:
        report.say("  until the next handler started", text(min(after) - kill.at))
    for message in sorted(kill.messages):
        tries = [f"{datetime.fromtimestamp(note.at):%H:%M:%S}" for note in starts if note.sequence == message]
        report.say("  message in hand", f"{message}, started {' and '.join(tries)}")
    if kill.what == "mover":
        later = [process.started for process in watch.of_role("mover") if process.started > kill.at]
        due = [note.latency for note in starts if kill.at < note.due < min(later, default=0.0)]
        report.say("  late, of those due before the next mover", spread(due))


def sleep_until(moment: float) -> None:
    """``moment`` in seconds since the epoch."""
    time.sleep(max(0.0, moment - time.time()))


def wait_for(holds: Callable[[], bool], seconds: float, *, every: float = LOOK_EVERY) -> None:
    """Until it holds. TimeoutError after so many seconds."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds:.0f} s in vain")
        time.sleep(every)
