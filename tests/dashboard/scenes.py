"""Stores to look at: what an hour leaves behind, written as launches write it."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from pollconsumer.core.durations import Histogram
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.leases import write_histogram
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.ledger import _BLANK
from pollconsumer.store.records import rows
from pollconsumer.store.recurrences import LaunchRecurrences
from tests.store.acting import HOUR, Launch, die, message, retry
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire

MINUTE = 60_000
MILLION = 1_000_000


class Scene:
    """A namespace of a store, filled by ``wire``. ``share``: of the completed messages, where fewer do."""

    def __init__(self, wire: Wire, namespace: str, share: float = 1.0) -> None:
        self._share = share
        self.wire, self.store = wire, RedisStore(wire, namespace)
        self.namespace, self.now, self.chance = namespace, server_ms(wire), random.Random(7)
        self._control = self.store.keys.control

    def launch(
        self, minutes_ago: float, *, role: str = "consumer", queues: tuple[str, ...] = ("mail",), **facts: Any
    ) -> None:
        """An entry of the ledger; the oldest first."""
        started = int(self.now - minutes_ago * MINUTE)
        waited, ran = facts.pop("waited", 0.4), facts.pop("ran", 56.0)
        entry = _BLANK | {
            "launch_id": f"{started}{role}", "role": role, "queues": queues, "stop_reason": "no_time_to_handle",
            "exit_code": 0, "lineage": f"{role}:{','.join(queues)}:0", "started_ms": started,
            "acquired_ms": started + int(waited * 1000), "ended_ms": started + int((waited + ran) * 1000),
            "running_seconds": waited + ran, "launch_offset_seconds": 0.3, "exit_seconds": 0.02,
            "next_tick_seconds": 59.7,
            "average_seconds": 0.08, "margin_seconds": 2.4, "handled": 0, "fence": 1,
        }  # fmt: skip
        entry |= facts
        self.wire.command("HSET", self._control("ledger"), entry["launch_id"], json.dumps(entry))
        self.wire.command("LPUSH", self._control("launches"), entry["launch_id"])

    def completed(self, queue: str, count: int, *, handler: str, waited: float, late: float | None = None) -> None:
        """Spread over the hour, with waits of that many seconds on average."""
        key, ids, count = self.store.keys.queue, [], int(count * self._share)
        payload = encode_payload({"to": "ada@example.org"})
        record = rows.new_record(message("x", queue=queue, handler=handler, payload=payload))
        commands: list[tuple[Any, ...]] = [("SADD", self._control("queues"), queue)]
        for number in range(count):
            at = self.now - HOUR + HOUR * number // count
            took, wait = (int(1000 * self.chance.expovariate(1 / mean)) for mean in (0.08, waited))
            due = 0 if late is None else at - took - wait - int(1000 * self.chance.expovariate(1 / late))
            instants = (at - took, at - took, at, at - HOUR, due, at - took - wait, 0, 0)
            row = rows.BLANK[: rows.ATTEMPTS] + b"\0\1\0\0" + bytes(6) + b"".join(map(rows.pack6, instants))
            row = b"\0c" + row[2:] + handler.encode()
            stored = f"{queue}-{number}".encode()
            ids.append(stored)
            commands += [
                ("HSET", key(queue, "rows"), stored, row),
                ("HSET", key(queue, "records"), stored, record),
                ("RPUSH", key(queue, "completed"), stored),
            ]
        self.wire.all(commands)

    def durations(self, **means: float) -> None:
        for handler, mean in means.items():
            histogram = Histogram()
            for _ in range(5000):
                histogram.add(self.chance.lognormvariate(0, 0.7) * mean)
            self.wire.command("HSET", self._control("histograms"), handler, write_histogram(histogram))

    def recurrences(self, queue: str, **rules: dict[str, Any]) -> None:
        """Defined by the launches of the queue."""
        defined = [Recurrence(name, queue=queue, **rule) for name, rule in rules.items()]
        LaunchRecurrences(self.wire, self.namespace).define(f"consumer:{queue}", [queue], defined, lambda _: None)


def empty(scene: Scene) -> None:
    """Nothing but a store."""
    scene.wire.command("PING")


def usual(scene: Scene) -> None:
    """An hour of two crontab lines and a mover."""
    for ago in range(60, 0, -1):
        busy = 150 + int(350 * abs(((ago % 20) - 10) / 10))
        running: dict[str, Any] = {"ran": 56 + scene.chance.random(), "handled": busy, "gap_seconds": 2.9}
        scene.launch(ago - 0.5, **running)
        scene.launch(ago - 0.45, role="mover", queues=(), stop_reason="no_time_to_idle", ran=57.5, margin_seconds=0)
        if ago % 5 == 0:
            scene.launch(
                ago - 0.4, queues=("reports",), ran=230, average_seconds=20.0, handled=9, next_tick_seconds=299
            )
    scene.completed("mail", 9000, handler="mail.send", waited=0.02, late=0.004)
    scene.completed("reports", 108, handler="report.build", waited=12.0)
    scene.durations(**{"mail.send": 0.08, "report.build": 20.0})
    in_flight = [message(f"now-{n}", handler="mail.send", payload=b'{"to": "grace@example.org"}') for n in range(3)]
    scene.store.enqueue(in_flight)
    Launch(scene.store).reserve(3)
    later = [message(f"later-{n}", handler="mail.send", delay=MINUTE * (n + 2)) for n in range(14)]
    scene.store.enqueue(later)
    night: dict[str, Any] = {"handler": "report.build", "cron": "30 2 * * *", "timezone": "Europe/Paris"}
    scene.recurrences("reports", nightly=night)
    weekday = {"handler": "mail.send", "cron": "0 9 * * 1-5"}
    scene.recurrences("mail", digest=weekday, check={"handler": "mail.send", "every": 300.0})


def bad_hour(scene: Scene) -> None:
    """Kills, overruns, a launcher that stayed away, failures, a backlog, hostile text."""
    for ago in range(60, 2, -1):
        facts: dict[str, Any] = {"handled": scene.chance.randrange(80, 160), "failed": scene.chance.randrange(0, 9)}
        facts |= {"average_seconds": 0.4, "margin_seconds": 4.0, "ran": 55.0, "gap_seconds": 4.2}
        if 41 <= ago <= 48:
            continue
        if ago in (57, 33, 12):
            facts |= {"stop_reason": "died", "exit_code": -1, "ran": scene.chance.uniform(5, 40), "handled": 11}
        elif ago % 9 == 0:
            facts |= {"ran": scene.chance.uniform(62, 69), "handled": 90}
        elif ago % 9 == 8:
            facts |= {"waited": 8.0, "ran": 47.0}
        elif ago == 20:
            facts |= {"stop_reason": "watchdog", "exit_code": 124, "ran": 70.0}
        scene.launch(ago - 0.5, **facts)
    scene.completed("mail", 4000, handler="mail.send", waited=40.0, late=90.0)
    scene.durations(**{"mail.send": 0.4, "check": 3.0})
    hostile = '</pre><script>alert("x")</script>\u202e'
    names = ("ConnectionError: smtp.example.org: refused", f"ValueError: {hostile}", "TimeoutError: 30s")
    letters = [
        message(
            f"dead-{n}", handler="mail.send", payload=encode_payload({"to": f"user{n}@example.org", "subject": hostile})
        )
        for n in range(25)
    ]
    scene.store.enqueue(letters)
    launch = Launch(scene.store)
    traced = '\0Traceback (most recent call last):\n  File "mail.py", line 12, in send\n    smtp.connect()\n'
    launch.settle(*(die(r, names[n % 3] + traced + names[n % 3]) for n, r in enumerate(launch.reserve(25))))
    scene.store.enqueue([message(f"retry-{n}", handler="mail.send", headers={"customer": str(n)}) for n in range(4)])
    launch.settle(*(retry(r, 30_000, names[0]) for r in launch.reserve(4)))
    scene.store.enqueue([message(f"waiting-{n}", handler="mail.send") for n in range(700)])
    launch.reserve(2)
    scene.store.enqueue([message(f"report-{n}", queue="reports", handler="report.build") for n in range(12)])
    MessageActions(scene.wire, scene.namespace).pause("reports", paused=True)
    scene.recurrences("mail", check={"handler": "check", "every": 60.0})


def a_million(scene: Scene) -> None:
    """As usual, and a million ready messages."""
    usual(scene)
    for first in range(0, MILLION, 20_000):
        scene.store.enqueue([message(f"bulk-{first + n}", handler="mail.send") for n in range(20_000)])


SCENES = {"empty": empty, "usual": usual, "bad_hour": bad_hour, "a_million": a_million}
