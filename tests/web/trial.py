"""A stand-in of schedulers that call a URL once a minute, by the rules of Vercel's cron and App Engine's in turn.

Vercel's sends GET with a token, sometimes twice, the second time to another instance; a function that lasts too long is
killed with all of its processes. App Engine's sends GET with its header, and again where the answer is 503.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.site import Site, wait_until
from tests.web.conftest import ENQUEUE_TOKEN, TOKEN

SERVER = """
import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from handlers import app
from pollconsumer.web import LaunchEndpoint


class Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *_): ...


server = Threads(("127.0.0.1", int(sys.argv[1])), Quiet)
server.set_app(LaunchEndpoint(app))
server.serve_forever()
"""
HANDLER = """
@app.handler
def arrive(number: int, since: float) -> None:
    note(f"{number} {since} {time.time()}")
    time.sleep(0.02)
"""
BUDGET = 25.0
LIMIT = 10.0
"""Seconds after which a function is killed, in the minutes in which its limit is below the budget by mistake."""
CUT, TWICE, AGAIN_WITHIN = 0.25, 0.5, 3.0


class UrlResult(NamedTuple):
    """``latencies`` in seconds, sorted, from the producer's first try to the handler's start."""

    acknowledged: int
    lost: list[int]
    twice: list[int]
    latencies: list[float]
    answers: Counter[str]
    longest: float
    kills: int


class Instance:
    """A process of a web server."""

    def __init__(self, site: Site, **environment: str) -> None:
        self._site, self._environment = site, environment
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        given = self._site.environment | self._environment
        words = [sys.executable, "-c", SERVER, str(self.port)]
        self._process = subprocess.Popen(words, cwd=self._site.directory, env=given, stdin=subprocess.DEVNULL)
        wait_until(self._listens, "the start of an instance")

    def kill(self) -> None:
        """Kill it with everything that it has started, as where its machine ends."""
        found = [self._process.pid]
        for pid in found:
            with suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def ask(self, method: str, path: str, seconds: float, body: Any = None, **headers: str) -> tuple[int, Any]:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answered:
                return answered.status, json.load(answered)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            return 0, {}

    def _listens(self) -> bool:
        return self.ask("GET", "/", 1.0)[0] == 404


class UrlTrial:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._site = Site()
        self._site.environment |= {
            "POLLCONSUMER_WEB__TOKEN": TOKEN,
            "POLLCONSUMER_WEB__ENQUEUE_TOKEN": ENQUEUE_TOKEN,
            "POLLCONSUMER_WEB__BUDGET": f"{BUDGET}s",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        with (self._site.directory / "handlers.py").open("a") as handlers:
            handlers.write(HANDLER)
        self._vercel = [Instance(self._site), Instance(self._site)]
        self._app_engine = Instance(self._site, GAE_ENV="standard")
        self._over = threading.Event()
        self._acknowledged: list[int] = []
        self._answers, self._longest, self._kills = Counter[str](), 0.0, 0

    def run(self, minutes: int, pace: float, minute: float = 60.0) -> UrlResult:
        """``pace``: seconds between two messages, on average."""
        producing = threading.Thread(target=self._produce, args=(pace,))
        producing.start()
        begun = time.monotonic()
        calls = [threading.Thread(target=self._call, args=(begun + n * minute, n)) for n in range(minutes)]
        for call in calls:
            call.start()
        time.sleep(max(0.0, begun + minutes * minute - time.monotonic()))
        self._over.set()
        for thread in (producing, *calls):
            thread.join()
        while self._ask_app_engine() != "200 empty":
            time.sleep(1)
        return self._result()

    def close(self) -> None:
        for instance in (*self._vercel, self._app_engine):
            instance.kill()
        self._site.close()

    def _produce(self, pace: float) -> None:
        number = 0
        while not self._over.wait(self._chance.expovariate(1 / pace)):
            number += 1
            message = {"handler": "arrive", "payload": {"number": number, "since": time.time()}, "id": f"n.{number}"}
            status = 0
            while status != 202:
                instance = self._vercel[number % 2]
                status, _ = instance.ask(
                    "POST", "/messages", 5.0, message, Authorization=f"Bearer {ENQUEUE_TOKEN}", Content_Type="text/json"
                )
            self._acknowledged.append(number)

    def _call(self, at: float, n: int) -> None:
        time.sleep(max(0.0, at - time.monotonic()))
        if n % 2:
            self._ask_app_engine()
            return
        again = None
        if self._chance.random() < TWICE:
            again = threading.Timer(self._chance.uniform(0, AGAIN_WITHIN), self._ask_vercel, (1, False))
            again.start()
        self._ask_vercel(0, self._chance.random() < CUT)
        if again is not None:
            again.join()

    def _ask_vercel(self, at: int, cut: bool) -> None:
        self._ask(self._vercel[at], LIMIT if cut else 60.0, Authorization=f"Bearer {TOKEN}")
        if cut:
            self._vercel[at].kill()
            self._kills += 1
            self._vercel[at].start()

    def _ask_app_engine(self) -> str:
        while (told := self._ask(self._app_engine, 600.0, X_Appengine_Cron="true")).startswith("503"):
            time.sleep(5)
        return told

    def _ask(self, instance: Instance, seconds: float, **headers: str) -> str:
        asked = time.monotonic()
        status, said = instance.ask("GET", "/api/launch", seconds, **headers)
        self._longest = max(self._longest, time.monotonic() - asked)
        told = f"{status} {said.get('note') or said.get('stop_reason') or said.get('error', 'cut off')}"
        self._answers[told] += 1
        return told

    def _result(self) -> UrlResult:
        notes = [line.split() for line in self._site.notes()]
        handled = Counter(int(number) for number, _, _ in notes)
        first: dict[str, float] = {}
        for number, since, at in notes:
            first.setdefault(number, float(at) - float(since))
        return UrlResult(
            acknowledged=len(self._acknowledged),
            lost=[number for number in self._acknowledged if number not in handled],
            twice=[number for number, times in handled.items() if times > 1],
            latencies=sorted(first.values()),
            answers=self._answers,
            longest=self._longest,
            kills=self._kills,
        )
