"""Commands and launches in forks of one process that has imported their modules: a seventh of the cost of a start.

Modules of the user are imported in the fork, as always. Where the start of the interpreter, or the imports of ours, are
the subject, a process is started as users start it: `Site.command_from_the_start`, `Site.start_program`, and each
command of test_exits.py and of test_text_from_outside.py.
"""

from __future__ import annotations

import gc
import json
import os
import select
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, ClassVar, NamedTuple, NoReturn

from tests import server_stand_in
from tests.exits import RUNS
from tests.short_directory import short_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBER = struct.Struct("!i")
CLONE_NEWNS, PR_SET_DUMPABLE = 0x20000, 4
"""Of Linux."""
LEFT_OUT = (
    "pollconsumer.__main__",
    "pollconsumer.django",
    "pollconsumer.interface.memory_store",
    "pollconsumer.interface.sandbox",
    "pollconsumer.interface.assembly.child",
)
"""Modules that a launch does not import, or that do their work when they are imported."""


class User(NamedTuple):
    """Who runs a command, in a mount namespace of its own in which root has run ``script``."""

    script: str
    name: str
    umask: int


class Fork:
    """A command that runs, with what tests ask of a `subprocess.Popen`. Its input is empty."""

    def __init__(self, words: tuple[str, ...], channel: socket.socket, output: int, errors: int) -> None:
        self.args = words
        self.returncode: int | None = None
        self._channel = channel
        self._printed = {output: b"", errors: b""}
        self._open = {output, errors}
        self.pid = self._number()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._channel], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._channel], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it printed, once nobody holds its output and errors any more."""
        until = None if timeout is None else time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for descriptor in self._open:
                selector.register(descriptor, selectors.EVENT_READ)
            while self._open:
                left = None if until is None else max(0, until - time.monotonic())
                ready = selector.select(left)
                if not ready:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                for key, _ in ready:
                    read = os.read(key.fd, 65536)
                    self._printed[key.fd] += read
                    if not read:
                        selector.unregister(key.fd)
                        self._open.remove(key.fd)
                        os.close(key.fd)
        self.wait(None if until is None else max(0, until - time.monotonic()))
        output, errors = (text.decode() for text in self._printed.values())
        RUNS.note(self, errors)
        return output, errors

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = self._number()
        self._channel.close()

    def _number(self) -> int:
        received = self._channel.recv(NUMBER.size, socket.MSG_WAITALL)
        assert received, "the process to fork from has ended"
        number: int = NUMBER.unpack(received)[0]
        return number


class Forks:
    """Starts commands. The process to fork from starts with `serve` or the first command, and ends with `close`, or
    whoever started it. With the first command it imports our modules and ``modules``."""

    made: ClassVar[list[Forks]] = []

    def __init__(self, *modules: str) -> None:
        self.made.append(self)
        self.address: str | None = None
        """Where the process to fork from is asked: several processes may ask one. None before it is started."""
        self._modules = modules
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def serve(self) -> str:
        """Start the process to fork from, if there is none. Returns its address."""
        with self._lock:
            if self.address is None:
                self.address = str(short_directory() / "forks")
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as requests:
                    requests.bind(self.address)
                    self._process = _start(requests, self._modules)
            return self.address

    def start(
        self,
        words: tuple[str, ...],
        directory: Path,
        environment: Mapping[str, str],
        constants: Mapping[str, float],
        user: User | None = None,
    ) -> Fork:
        """``words``: ``-m pollconsumer`` and its arguments, or ``-c`` and a program, of which warnings are errors.
        ``constants``: what our modules have instead, wherever they hold one of that name."""
        channel, theirs = socket.socketpair()
        (output, output_end), (errors, errors_end) = os.pipe(), os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            asking.connect(self.serve())
            socket.send_fds(asking, [b"."], [theirs.fileno(), output_end, errors_end])
        for descriptor in (theirs.detach(), output_end, errors_end):
            os.close(descriptor)
        channel.sendall(json.dumps([words, str(directory), environment, constants, user]).encode())
        channel.shutdown(socket.SHUT_WR)
        return Fork(words, channel, output, errors)

    def close(self) -> None:
        """End the process to fork from, if it was started here."""
        if self._process is not None and self.address is not None:
            self._process.communicate()
            shutil.rmtree(Path(self.address).parent)


def _start(requests: socket.socket, modules: tuple[str, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(requests.fileno()), *modules],
        cwd=Path(__file__).parents[1],
        # As in a Site: what an interpreter reads at its start is the same.
        env={"PATH": os.defpath, **server_stand_in.ENVIRONMENT},
        start_new_session=True,
        pass_fds=[requests.fileno()],
        stdin=subprocess.PIPE,  # closed when who started it ends
        stdout=subprocess.PIPE,  # as in a Site, too
        stderr=subprocess.PIPE,
    )


def _serve(number: int, modules: list[str]) -> None:
    """Fork for each request; tell who made it the process's number, and its exit code in the end."""
    requests = socket.socket(fileno=number)
    lifeline = sys.stdin.fileno()
    if number not in select.select([number, lifeline], [], [])[0]:
        return
    _import_modules()
    for module in modules:
        import_module(module)
    gc.freeze()
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    channels: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([number, ended, lifeline], [], [])
        if ended in ready:
            os.read(ended, 4096)
            for pid in list(channels):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    channel = channels.pop(pid)
                    _tell(channel, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                    os.close(channel)
        if number in ready:
            _, descriptors, _, _ = socket.recv_fds(requests, 1, 3)
            pid = os.fork()
            if pid == 0:
                try:
                    requests.detach()
                    _become(*descriptors)
                finally:
                    os._exit(1)
            channels[pid], output, errors = descriptors
            os.close(output)
            os.close(errors)
            _tell(channels[pid], pid)
        elif lifeline in ready:
            return


def _tell(channel: int, number: int) -> None:
    with socket.socket(fileno=os.dup(channel)) as connection:
        try:
            connection.sendall(NUMBER.pack(number))
        except BrokenPipeError:
            return  # who started it has ended


def _import_modules() -> None:
    import pollconsumer

    for module in walk_packages(pollconsumer.__path__, "pollconsumer."):
        if not module.name.startswith(LEFT_OUT):
            with suppress(ImportError):  # of an extra that is not installed
                import_module(module.name)


def _become(channel: int, output: int, errors: int) -> NoReturn:
    """The command, with the descriptors, signals, and session that cron would give it."""
    from pollconsumer import __main__ as command

    with socket.socket(fileno=channel) as connection, connection.makefile("rb") as request:
        (kind, what, *arguments), directory, environment, constants, user = json.load(request)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for descriptor, source in enumerate((os.open(os.devnull, os.O_RDONLY), output, errors)):
        os.dup2(source, descriptor)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for name, module in sys.modules.items() if constants else ():  # each module that is looked at is a page to copy
        if name.startswith("pollconsumer."):
            vars(module).update({constant: constants[constant] for constant in vars(module).keys() & constants.keys()})
    if user:
        _switch_to(User(*user))
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = directory
    if kind == "-c":
        _run(what)
    sys.argv = [command.__file__, *arguments]
    command.main()


def _switch_to(user: User) -> None:
    import ctypes  # few commands are a user's
    from pwd import getpwnam

    system = ctypes.CDLL(None, use_errno=True)
    assert system.unshare(CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    subprocess.run(["sh", "-c", f"mount --make-rprivate /\n{user.script}"], check=True)
    found = getpwnam(user.name)
    os.initgroups(user.name, found.pw_gid)
    os.setgid(found.pw_gid)
    os.setuid(found.pw_uid)
    os.umask(user.umask)
    system.prctl(PR_SET_DUMPABLE, 1)  # as after a start: /proc/self is the user's


def _run(program: str) -> NoReturn:
    """As ``python -W error -c`` does."""
    warnings.simplefilter("error")
    code = 1
    try:
        exec(program, {"__name__": "__main__"})
        sys.stdout.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


FORKS = Forks()
DJANGO_FORKS = Forks(
    "django.db.backends.sqlite3.base",
    *(f"pollconsumer.django.{module}" for module in ("task_backend", "task_handlers", "site")),
)
"""Of sites, which import these, too."""

if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2:])
