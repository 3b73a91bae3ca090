"""A user's installation: a directory with a configuration, a module of handlers, and the command."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from pollconsumer.core.errors import PollConsumerError, StoreUnreachable
from pollconsumer.interface import cli
from pollconsumer.interface.api.registry import registry
from pollconsumer.runtime.embedded.directory import SOCKET
from pollconsumer.runtime.embedded.server import EmbeddedServer
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.reading.inspector import Inspector
from tests import server_stand_in
from tests.forks import FORKS, Fork
from tests.short_directory import short_directory
from tests.store.servers import Impatient

if TYPE_CHECKING:
    from collections.abc import Callable

Launch = Fork | subprocess.Popen[str]

QUICK_LEASES = {"TTL": 4.5, "RENEW_EVERY": 1.5, "TRUSTED_FOR": 3.0, "THOUGHT_DEAD_AFTER": 6.75}
"""Constants for leases that lapse in less than a third of their time, with all of their times in proportion."""

IMPORTING = frozenset({"run", "move", "check"})
"""Commands that import the user's modules."""

LOOKING = frozenset({"status", "list", "launches", "recurrences", "lease", "dead", "queue", "batch"})
"""Commands that import nothing of the user's, by which tests mostly look at what others have done."""

PATIENCE = 90.0
"""Seconds after which what a test waits for is taken not to happen."""

HANDLERS = '''
import os, sys, threading, time
from pathlib import Path
from pollconsumer import Backoff, Fatal, PollConsumer, RetryIn

app = PollConsumer()
HERE = Path(__file__).parent
together = threading.Barrier(2)

def note(what):
    descriptor = os.open(HERE / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{what}\\n".encode())
    os.close(descriptor)

@app.handler
def record(name: str) -> None:
    note(name)

@app.handler
def hold(name: str) -> None:
    """Until the test opens the gate."""
    note(f"begin {name}")
    while not (HERE / "gate").exists():
        time.sleep(0.005)
    note(f"end {name}")

@app.handler
def meet(name: str) -> None:
    together.wait(10)
    note(name)

@app.handler
def hang() -> None:
    note("hang")
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            pass

def keep_interpreter() -> None:
    """Hold its lock for good, without the processor: wait for a mutex that this thread has."""
    import ctypes  # which few need
    mutex = ctypes.create_string_buffer(128)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)

@app.handler
def hang_with_the_lock() -> None:
    note("hang_with_the_lock")
    keep_interpreter()

@app.handler(max_attempts=3, retry=Backoff(first="10ms", factor=1, most="10ms"))
def fail(name: str, times: int) -> None:
    note(f"try {name}")
    tried = (HERE / "notes").read_text().count(f"try {name}\\n")
    if tried <= times:
        raise ValueError(f"{name} is not ready")

@app.handler
def fatal() -> None:
    raise Fatal("never again")

@app.handler
def leave(how: str) -> None:
    note(f"leave {how}")
    if how == "exit":
        sys.exit(3)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "close":
        os.close(0), os.close(1), os.close(2)
    if how == "chdir":
        os.chdir("/")
    if how == "die":
        os._exit(9)
    if how == "vanish":
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(child), 9)
        os.kill(os.getpid(), 9)
'''


class Site:
    """Commands are forked, but where the environment says something to the interpreter. ``forks_launches``: whether
    those are, too, that import the user's modules. Otherwise they are started as users start them. What `json`
    and `state` look at is read in this process, for a quarter of the cost of a fork."""

    forks = FORKS
    looking = LOOKING

    def __init__(self, settings: str = "", *, forks_launches: bool = True) -> None:
        self.constants: dict[str, float] = {}
        """Of our modules, as forked commands have them."""
        self._from_the_start = frozenset() if forks_launches else IMPORTING
        self.directory = short_directory()
        self.environment = {
            "HOME": str(self.directory),
            "PATH": os.defpath,
            **server_stand_in.ENVIRONMENT,
            **{f"XDG_{kind}_HOME": str(self.directory / kind.lower()) for kind in ("DATA", "STATE", "CACHE")},
        }
        (self.directory / "config.toml").write_text(f'handlers = ["handlers"]\n{settings}')
        (self.directory / "handlers.py").write_text(HANDLERS)
        self._processes: list[Launch] = []

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()
        with suppress(PollConsumerError):
            EmbeddedServer(self.socket.parent).stop()
        shutil.rmtree(self.directory)

    def start(self, *arguments: str, **environment: str) -> Launch:
        """Start a command and return at once."""
        environment = self.environment | environment
        of_the_interpreter = [name for name in environment if name.startswith("PYTHON")]
        if self._from_the_start & {*arguments} or {*of_the_interpreter} - server_stand_in.ENVIRONMENT.keys():
            return self.start_program([sys.executable, "-m", "pollconsumer", *arguments], **environment)
        return self._fork("-m", "pollconsumer", *arguments, environment=environment)

    def _fork(self, *words: str, environment: dict[str, str]) -> Fork:
        process = self.forks.start(words, self.directory, environment, self.constants)
        self._processes.append(process)
        return process

    def start_program(self, command: list[str], **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            cwd=self.directory,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return self._completed(self.start(*arguments, **environment))

    def command_from_the_start(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end as a user does, where its start is the subject, too."""
        program = [sys.executable, "-m", "pollconsumer", *arguments]
        return self._completed(self.start_program(program, **environment))

    def _ran_here(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output and errors of a command in this process."""
        output, errors = io.StringIO(), io.StringIO()
        with (
            chdir(self.directory),
            mock.patch.dict(os.environ, self.environment, clear=True),
            registry.afresh(),
            redirect_stdout(output),
            redirect_stderr(errors),
        ):
            return cli.main(arguments), output.getvalue(), errors.getvalue()

    def _completed(self, process: Launch) -> subprocess.CompletedProcess[str]:
        output, errors = process.communicate(timeout=2 * PATIENCE)
        assert process.returncode is not None
        self._processes.remove(process)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def enqueue(self, handler: str, *options: str, **payload: Any) -> str:
        done = self.command("enqueue", handler, json.dumps(payload), *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def drain(self, *options: str) -> subprocess.CompletedProcess[str]:
        """One launch that ends when there is nothing to handle."""
        return self.command("run", "--until-empty", *options)

    def outlast(self, begun: str, *options: str) -> subprocess.CompletedProcess[str]:
        """A launch that ends while the handler that notes ``begun`` runs, in the shortest window in which this machine,
        however busy it is, lets it begin."""

        def times() -> int:
            return sum(note.split()[: len(begun.split())] == begun.split() for note in self.notes())

        for seconds in (1, 5, 30):
            before = times()
            window = [
                "--timeout",
                f"{seconds}s",
                "--min-margin",
                "0s",
                "--estimated-duration",
                "1ms",
                "--grace",
                "2s",
                "--handler-limit",
                "1s",
            ]
            done = self.command("run", *window, *options)
            if times() > before:
                return done
        raise AssertionError(f"{begun!r} was not noted")

    def json(self, *arguments: str) -> Any:
        if arguments[0] in self.looking and threading.current_thread() is threading.main_thread():
            code, output, errors = self._ran_here(*arguments, "--json")
        else:
            done = self.command(*arguments, "--json")
            code, output, errors = done.returncode, done.stdout, done.stderr
        assert code == 0, errors
        return json.loads(output)

    def state(self, message_id: str) -> str:
        state: str = self.json("status", message_id)["state"]
        return state

    def notes(self) -> list[str]:
        try:
            return (self.directory / "notes").read_text().splitlines()
        except FileNotFoundError:
            return []

    @property
    def socket(self) -> Path:
        """The embedded server's."""
        return self.directory / "data" / "pollconsumer" / SOCKET

    def control_keys(self) -> set[str]:
        """Names in the control slot, without their prefix."""
        from redis import Redis

        with Redis(unix_socket_path=str(self.socket)) as client:
            return {key.decode().partition("}:")[2] for key in client.keys("{pollconsumer}:*")}

    def holders(self) -> set[int]:
        """Processes that hold a lease of the embedded server, as `lease show` lists them, read without a command."""
        wire = Wire(f"unix://{self.socket}", Impatient)
        try:
            return {lease["pid"] for lease in Inspector(wire, "pollconsumer").leases()}
        except StoreUnreachable:
            return set()
        finally:
            wire.close()

    def open_gate(self) -> None:
        (self.directory / "gate").touch()

    def await_note(self, note: str, times: int = 1) -> None:
        wait_until(lambda: self.notes().count(note) >= times, f"note {note!r}")

    def await_holder(self, pid: int) -> None:
        wait_until(lambda: pid in self.holders(), f"lease of {pid}")

    def await_release(self) -> None:
        wait_until(lambda: not self.holders(), "the end of every lease")

    def heartbeat_of(self, pid: int) -> int:
        """The launch's only child."""
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert len(children) == 1
        return int(children[0])


def wait_until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        asked = time.monotonic()
        if holds():
            return
        now = time.monotonic()
        assert now < until, f"{what} did not happen"
        time.sleep(max(0.01, 4 * (now - asked)))  # what is waited for wants the processor, too
