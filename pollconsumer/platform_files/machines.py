"""Files of platforms on this machine: units of systemd, and an agent of launchd."""

from __future__ import annotations

import shlex
from pathlib import Path
from xml.sax.saxutils import escape

from pollconsumer.platform_files.calendar import for_launchd, for_systemd
from pollconsumer.platform_files.files import File, render, systemd, systemd_word
from pollconsumer.platform_files.installation import Installation

HOMES = tuple(map(Path, ("/home", "/root", "/run/user")))
"""The directories that ProtectHome=yes hides."""


def systemd_files(installation: Installation) -> list[File]:
    """Timers and services for launches and the alarm; a service for the embedded server, which outlives launches."""
    name, data, store = installation.name, installation.data, f"{installation.name}-store.service"
    environment_file = str(installation.environment_file).replace("%", "%%")
    common = {
        "after_store": f"Requires={store}\nAfter={store}" if data else "",
        "environment_file": f"EnvironmentFile={environment_file}" if installation.environment else "",
        "sandbox": _sandbox(installation),
    }
    calendar = "\n".join(f"OnCalendar={each}" for each in for_systemd(installation.schedule))
    doctor = systemd(installation.doctor())
    found = [
        File(f"{name}.service", _service(installation, common)),
        File(f"{name}.timer", installation.render("pollconsumer.timer", calendar=calendar)),
        File(f"{name}-doctor.service", installation.render("pollconsumer-doctor.service", doctor=doctor, **common)),
        File(f"{name}-doctor.timer", installation.render("pollconsumer-doctor.timer")),
    ]
    if data:
        start, stop = (systemd(installation.command("store", verb)) for verb in ("start", "stop"))
        values = {"start": start, "stop": stop, "directory": systemd_word(str(data))} | common
        found.append(File(store, installation.render("pollconsumer-store.service", **values)))
    return [*found, *installation.environment_files()]


def _service(installation: Installation, common: dict[str, str]) -> str:
    return installation.render(
        "pollconsumer.service",
        run=systemd(installation.run("--handoff", "deadline", "--launcher", "queue")),
        start_timeout=installation.hard_end + 60,
        # A launch that finds no server starts one. That must not be killed at the launch's end.
        kill_mode="# A server that the launch had to start stays.\nKillMode=process"
        if installation.data
        else "KillMode=mixed",
        **common,
    )


def _sandbox(installation: Installation) -> str:
    """The limits of what launches, the alarm and the embedded server may do, the same in all units."""
    data, home = installation.data, installation.data_home
    read = [Path(installation.program[0]), installation.settings.directory, *installation.read, *filter(None, [data])]
    settings, pages = installation.settings, installation.settings.dashboard.static
    paths = (data, settings.spool_directory(), settings.directory / Path(pages).expanduser() if pages else None)
    # Because of the dash, a unit can start even if its directory does not exist yet.
    written = [f"ReadWritePaths={systemd_word(f'-{each}')}" for each in paths if each is not None]
    at_home = any(path.is_relative_to(hidden) for path in read for hidden in HOMES)
    return render(
        "sandbox",
        data_home=f"Environment={systemd_word(f'XDG_DATA_HOME={home}')}" if home else "",
        protect_home="# The program, the configuration or the store is there.\nProtectHome=read-only"
        if at_home
        else "ProtectHome=yes",
        writable="\n".join(["# Where launches write; the unit of the store makes its directory.", *written])
        if written
        else "",
    )


def launchd_files(installation: Installation) -> list[File]:
    """A property list: an agent of this user on macOS."""
    label = f"local.{installation.name}"
    words = installation.run("--handoff", "deadline", "--launcher", "drop")
    if installation.data_home:
        words = ("/usr/bin/env", f"XDG_DATA_HOME={installation.data_home}", *words)
    if installation.environment:
        source = shlex.quote(str(installation.environment_file))
        words = ("/bin/sh", "-c", f"set -a; . {source}; exec {shlex.join(words)}")
    text = installation.render(
        "launchd.plist",
        label=label,
        words="\n".join(f"<string>{escape(word)}</string>" for word in words),
        instants="\n".join(_entry(each) for each in for_launchd(installation.schedule)),
        log=escape(str(installation.settings.directory / f"{label}.log")),
    )
    return [File(f"{label}.plist", text), *installation.environment_files(printed=False)]


def _entry(instant: dict[str, int]) -> str:
    keys = "".join(f"<key>{key}</key><integer>{value}</integer>" for key, value in instant.items())
    return f"<dict>{keys}</dict>"
