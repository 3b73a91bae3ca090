"""What harms an installation: one fault at a time, chosen by a seed, each undone before the next or at the end."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from redis import exceptions

from pollconsumer.interface.assembly import child_main
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.reading.inspector import Inspector
from tests.faults.history import HandlerPause
from tests.faults.installation import NAMESPACE
from tests.faults.recording import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.installation import Installation
    from tests.faults.platform import Platform

ENDLESS = "while true do end"
LONGEST_SEARCH = 3.0
NOT_THERE = 66
"""The exit code of a command that finds nothing to be resumed."""
NOBODY = ", and nobody was there"
SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT, "hang up": signal.SIGHUP}


class Nemesis:
    def __init__(self, seed: int, installation: Installation, platform: Platform) -> None:
        self.chance = random.Random(seed)
        self._installation, self._platform = installation, platform
        self.done: list[str] = []
        """Names of the faults so far, in order."""
        self.suspended: set[int] = set()
        self.resumed: list[int] = []
        """When they were let go on, in epoch µs."""
        self.pauses: list[tuple[str, int, int]] = []
        """Queue, and in epoch ms since when and until when it was certainly paused."""
        self.handler_pauses: list[HandlerPause] = []

    def faults(self) -> dict[str, Callable[[], object]]:
        return {
            "kill launch": lambda: self._signal(lambda: self._launches("run"), "kill"),
            "kill heartbeat": lambda: self._signal(self._heartbeats, "kill"),
            "kill launch and heartbeat": self.kill_launch_and_heartbeat,
            "kill mover": lambda: self._signal(lambda: self._launches("move"), "kill"),
            "kill isolated process": lambda: self._signal(self._isolated, "kill"),
            "kill program": lambda: self._signal(self._programs, "kill"),
            "terminate launch": lambda: self._signal(lambda: self._launches("run"), "terminate"),
            "terminate launch twice": self.terminate_twice,
            "interrupt launch": lambda: self._signal(lambda: self._launches("run"), "interrupt"),
            "hang up mover": lambda: self._signal(lambda: self._launches("move"), "hang up"),
            "terminate heartbeat": lambda: self._signal(self._heartbeats, "terminate"),
            "terminate isolated process": lambda: self._signal(self._isolated, "terminate"),
            "terminate program": lambda: self._signal(self._programs, "terminate"),
            "suspend launch": lambda: self._suspend(lambda: self._launches("run")),
            "suspend heartbeat": lambda: self._suspend(self._heartbeats),
            "suspend mover": lambda: self._suspend(lambda: self._launches("move")),
            "suspend isolated process": lambda: self._suspend(self._isolated),
            "suspend everything": self.suspend_everything,
            "suspend server": self.suspend_server,
            "kill server": self.kill_server,
            "restart server": self.restart_server,
            "reset connections": self._installation.proxy.cut,
            "end connections halfway": self._installation.proxy.half_close,
            "lose replies": lambda: self._installation.proxy.lose_replies(self.chance.randint(1, 5)),
            "delay": lambda: self._proxy(delay=self.chance.uniform(0.02, 0.3)),
            "silence": lambda: self._proxy(silent=True),
            "slices": lambda: self._proxy(slices=7),
            "refuse connections": lambda: self._proxy(away=True),
            "forget scripts": lambda: self._command("SCRIPT", "FLUSH"),
            "kill clients": lambda: self._command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
            "endless script": self.endless_script,
            "full memory": self.full_memory,
            "pause queue": self.pause_queue,
            "pause queue for a time": self.pause_queue_for,
            "pause handler": self.pause_handler,
            "launch storm": self.launch_storm,
        }

    def strike(self, name: str) -> None:
        """Do one of them. What it is aimed at may be gone in the meantime."""
        self.done.append(name)
        with suppress(ProcessLookupError):
            self.faults()[name]()

    def deal(self, count: int) -> list[str]:
        """Names of so many faults: each once, in an order of chance, and again."""
        dealt: list[str] = []
        while len(dealt) < count:
            names = sorted(self.faults())
            self.chance.shuffle(names)
            dealt += names
        return dealt[:count]

    def heal(self) -> None:
        """Resume what is suspended, and let everything through."""
        self._installation.proxy.heal()
        self.resumed.append(now())
        for pid in self.suspended:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if not self._installation.server.is_running():
            self._installation.server.start()
        self._installation.server.signal(signal.SIGCONT)
        self._installation.server.await_ready()
        self._command("CONFIG", "SET", "maxmemory", "0")
        wire = self._installation.server.wire()
        for queue in Inspector(wire, NAMESPACE).queues():
            self.end_pauses(queue)
            MessageActions(wire, NAMESPACE).pause(queue, paused=False)
        wire.close()

    # Whom

    def _launches(self, role: str) -> list[int]:
        return [launch.process.pid for launch in self._platform.living(role)]

    def _children(self) -> list[tuple[int, list[str]]]:
        own = {launch.process.pid for launch in self._platform.launches}
        return [(pid, words) for pid, words in self._installation.processes() if pid not in own]

    def _heartbeats(self) -> list[int]:
        """Forks of a launch: their arguments are its own."""
        return [pid for pid, words in self._children() if "run" in words]

    def _isolated(self) -> list[int]:
        program = Path(child_main.__file__).name
        return [pid for pid, words in self._children() if any(word.endswith(program) for word in words)]

    def _programs(self) -> list[int]:
        return [pid for pid, words in self._children() if any(word.endswith("program.py") for word in words)]

    # What

    def _one(self, find: Callable[[], list[int]]) -> list[int]:
        """One of them, as soon as there is any; none where there is none for a while."""
        until = time.monotonic() + LONGEST_SEARCH
        while time.monotonic() < until:
            if pids := find():
                return [self.chance.choice(pids)]
            time.sleep(0.005)
        self.done[-1] += NOBODY
        return []

    def _signal(self, find: Callable[[], list[int]], kind: str) -> None:
        for pid in self._one(find):
            os.kill(pid, SIGNALS[kind])

    def kill_launch_and_heartbeat(self) -> None:
        for pid in self._heartbeats() + self._launches("run"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def terminate_twice(self) -> None:
        for pid in self._launches("run")[:1]:
            os.kill(pid, signal.SIGTERM)
            time.sleep(self.chance.choice([0, 0.01]))
            os.kill(pid, signal.SIGTERM)

    def _suspend(self, find: Callable[[], list[int]]) -> None:
        self._stop_for_a_while(self._one(find))

    def suspend_everything(self) -> None:
        """As a machine that sleeps, and whose server does not."""
        self._stop_for_a_while([pid for pid, _ in self._installation.processes()])

    def _stop_for_a_while(self, pids: list[int]) -> None:
        if not pids:
            return
        self.suspended |= set(pids)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(self.chance.choice([0.1, 0.5, 2, 4]))
        self.resumed.append(now())
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def suspend_server(self) -> None:
        self._installation.server.signal(signal.SIGSTOP)
        time.sleep(self.chance.choice([0.1, 1, 3]))
        self._installation.server.signal(signal.SIGCONT)

    def kill_server(self) -> None:
        self._installation.server.kill()
        time.sleep(self.chance.choice([0, 0.2, 1]))
        self._installation.server.start()

    def restart_server(self) -> None:
        """Its file is rewritten first: from then on it is loaded key by key, and clients are told so."""
        self._command("BGREWRITEAOF")
        time.sleep(0.1)
        self._installation.server.stop()
        self._installation.server.start()

    def _proxy(self, **state: float | bool) -> None:
        for name, value in state.items():
            setattr(self._installation.proxy, name, value)
        time.sleep(self.chance.uniform(0.1, 1.5))
        self._installation.proxy.heal()

    def endless_script(self) -> None:
        """Of another client: everyone else is told BUSY, until a person kills it."""

        def run() -> None:
            with self._installation.server.client() as client, suppress(exceptions.RedisError):
                client.eval(ENDLESS, 0)

        running = threading.Thread(target=run)
        running.start()
        time.sleep(self.chance.uniform(0.3, 1.5))
        while running.is_alive():
            self._command("SCRIPT", "KILL")
            running.join(0.05)

    def full_memory(self) -> None:
        self._command("CONFIG", "SET", "maxmemory", "1mb")
        time.sleep(self.chance.uniform(0.1, 1.5))
        self._command("CONFIG", "SET", "maxmemory", "0")

    def pause_queue(self) -> None:
        queue = self.chance.choice(["default", "second"])
        paused = self._installation.run("queue", "pause", queue)
        since = now() // 1000 + 1
        time.sleep(0.5)
        if paused.code == 0:
            self.pauses.append((queue, since, now() // 1000 - 1))
        self.end_pauses(queue)
        self._installation.run("queue", "resume", queue)

    def pause_queue_for(self) -> None:
        """It ends as long after the command began as it lasts, at the earliest."""
        queue, asked = self.chance.choice(["default", "second"]), now() // 1000
        if self._installation.run("queue", "pause", queue, "--for", "3s").code == 0:
            self.pauses.append((queue, now() // 1000 + 1, asked + 2999))

    def end_pauses(self, queue: str) -> None:
        """Note that ``queue`` is about to be resumed: a pause for a time may have some of it left."""
        at = now() // 1000 - 1
        self.pauses = [(each, since, min(until, at) if each == queue else until) for each, since, until in self.pauses]

    def pause_handler(self) -> None:
        handler = self.chance.choice(["plain", "later", "apart", "program"])
        paused = self._installation.run("handler", "pause", handler)
        since = now() // 1000 + 1
        time.sleep(1.5)
        if paused.code == 0:
            self.handler_pauses.append(HandlerPause(handler, since, now() // 1000 - 1, frozenset()))
        while self._installation.run("handler", "resume", handler).code not in (0, NOT_THERE):
            pass

    def launch_storm(self) -> None:
        """Three beside those of the platform."""
        for _ in range(3):
            self._platform.launches.append(self._installation.start("-q", "run"))

    def _command(self, *words: str) -> None:
        """To the server itself; what it says about it does not matter."""
        with self._installation.server.client() as client, suppress(exceptions.RedisError):
            client.execute_command(*words)
