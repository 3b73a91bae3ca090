"""``python -m benchmarks.checks``: ten thousand checks of a thousand users, ten minutes of launches that are killed.

Periods are from ten seconds to a day, as many of each magnitude. Two consumers and a mover start each minute. Prints
whether every instant was enqueued once, how late each was handled, and the processor time of launches and server.
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from threading import Thread
from typing import TYPE_CHECKING

from benchmarks.place import at, place, run, server_seconds, start
from pollconsumer import PollConsumer
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.interface.api.app import calls_of
from pollconsumer.store.records.occurrences import occurrence_of
from pollconsumer.store.recurrences import readable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pollconsumer.interface.api.recurrences import NamedPutOptions
    from pollconsumer.store.client.wire import Wire

HANDLERS = """
import os, time
from pathlib import Path
from pollconsumer import Context, PollConsumer

app = PollConsumer()
notes = os.open(Path(__file__).with_name("notes"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

@app.handler("check")
def check(user: int, context: Context) -> dict[str, bool]:
    os.write(notes, f"{context.id} {time.time() * 1000:.0f}\\n".encode())
    return {"ok": True}
"""
LAUNCHES = [("run", "--instances", "2")] * 2 + [("move",)]
SHORTEST, LONGEST = 10, 86_400
"""Periods in seconds."""
PUT_AFTER, PUT_WITHIN_MS = 3.0, 10_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.checks")
    parser.add_argument("--checks", type=int, default=10_000)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--kill-every", type=float, default=25.0, metavar="SECONDS", help="0 for no kills")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with place() as directory:
        (directory / "checked.py").write_text(HANDLERS)
        (directory / "config.toml").write_text('handlers = ["checked"]\n')
        app = PollConsumer()
        wire: Wire = calls_of(app).ask(lambda store: store.wire)
        before = server_seconds(wire)
        wanted = _checks(given.checks, chance)
        putting = Thread(
            target=lambda: sys.stdout.write(f"put in {_seconds(lambda: _put(app, wanted)) - PUT_AFTER:.1f} s\n")
        )
        putting.start()
        killed = _launch(given.minutes, given.kill_every, chance)
        run("run", "--until-empty", "--timeout", "10m")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        _report(app, directory)
        occurrences = sum(each.enqueued for each in app.recurrences)
        launches, server = used.ru_utime + used.ru_stime, server_seconds(wire) - before
        sys.stdout.write(
            f"{given.minutes} minutes, {dict(killed)} killed\n"
            f"processor time for each occurrence, idling included: {launches / occurrences * 1e6:.0f} µs of launches, "
            f"{server / occurrences * 1e6:.0f} µs of the server\n"
        )


def _put(app: PollConsumer, wanted: list[NamedPutOptions]) -> None:
    """While the first launches go on."""
    time.sleep(PUT_AFTER)
    app.recurrences.put_many(wanted)


def _checks(count: int, chance: random.Random) -> list[NamedPutOptions]:
    found: list[NamedPutOptions] = []
    for n in range(count):
        every = round(SHORTEST * (LONGEST / SHORTEST) ** chance.random())
        user = n % (count // 10)
        options: NamedPutOptions = {"name": f"user{user}:{n}", "handler": "check", "every": every, "missed": "all"}
        options |= {"payload": {"user": user}, "created_by": f"user{user}"}
        found.append(options)
    return found


def _launch(minutes: int, kill_every: float, chance: random.Random) -> Counter[str]:
    """As cron would, and kill one of them now and then. Returns how many of each role were killed."""
    alive: list[tuple[str, subprocess.Popen[bytes]]] = []
    killed: Counter[str] = Counter()
    kill_at = time.time() + kill_every
    for _ in range(minutes):
        alive += [(words[0], start(*words, "--schedule", "* * * * *")) for words in LAUNCHES]
        tick = time.time() // 60 * 60 + 60
        while time.time() < tick:
            time.sleep(0.05)
            alive = [(role, launch) for role, launch in alive if launch.poll() is None]
            if kill_every and time.time() >= kill_at and alive:
                role, launch = chance.choice(alive)
                launch.send_signal(signal.SIGKILL)
                killed[role] += 1
                kill_at = time.time() + kill_every * 2 * chance.random()
    for _, launch in alive:
        launch.wait()
    return killed


def _report(app: PollConsumer, directory: Path) -> None:
    """Whether each instant was enqueued and handled once; lateness."""
    began: dict[str, float] = {}
    again = 0
    for line in (directory / "notes").read_text().splitlines():
        message_id, instant = line.split()
        again += message_id in began
        began.setdefault(message_id, float(instant))
    instants: dict[str, list[int]] = {}
    late, late_at_once = [], []
    for message_id in began:
        occurrence = occurrence_of(message_id.encode())
        assert occurrence is not None
        instants.setdefault(occurrence.recurrence.decode(), []).append(occurrence.instant)
    wrong = 0
    for each in app.recurrences:
        rule, had = readable(each), sorted(instants.get(each.name, ()))
        step = int((rule.every or 0) * 1000)
        assert each.next is not None
        expected = list(range(had[0], epoch_ms(each.next), step)) if had else []
        since_put = epoch_ms(rule.created) - had[0] if had and rule.created else -1
        wrong += had != expected or each.enqueued != len(had) or not 0 <= since_put < PUT_WITHIN_MS
        late_at_once += [began[_id_of(each.name, had[0])] - had[0]] if had else []
        late += [began[_id_of(each.name, instant)] - instant for instant in had[1:]]
    sys.stdout.write(
        f"{len(began)} occurrences, {again} handled again after a kill; "
        f"recurrences with an instant missing or enqueued twice: {wrong}\n"
    )
    for what, found in (("at once, all together", late_at_once), ("by period", late)):
        if found:
            figures = ", ".join(f"{name} {at(found, share):.0f}" for name, share in _SHARES)
            sys.stdout.write(f"late, {what} ({len(found)}), in ms: {figures}\n")


_SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("most", 1.0))


def _id_of(name: str, instant: int) -> str:
    from pollconsumer.store.records.occurrences import id_of

    return id_of(name, instant)


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
