"""A systemd timer and its service; and a service for the embedded store, which outlives launches."""

from __future__ import annotations

from pathlib import Path

from pollconsumer.platform_files.calendar import for_systemd
from pollconsumer.platform_files.file_text import render, systemd, systemd_word
from pollconsumer.platform_files.installation import ENVIRONMENT_FILE, PRIVATE, File, Installation, environment_text

HOMES = tuple(map(Path, ("/home", "/root", "/run/user")))
"""What ProtectHome=yes hides."""


def files(installation: Installation) -> list[File]:
    name, settings = installation.name, installation.settings
    home = installation.data_home
    data_home = home and f"Environment={systemd_word(f'XDG_DATA_HOME={home}')}"
    common = {"name": name, "namespace": settings.namespace, "user": installation.user, "data_home": data_home or ""}
    calendar = "\n".join(f"OnCalendar={each}" for each in for_systemd(installation.schedule))
    found = [
        File(f"{name}.service", _service(installation, common)),
        File(f"{name}.timer", render("pollconsumer.timer", calendar=calendar, **common)),
    ]
    if installation.data:
        start, stop = (systemd((*installation.program, "store", verb)) for verb in ("start", "stop"))
        found.append(
            File(f"{name}-store.service", render("pollconsumer-store.service", start=start, stop=stop, **common))
        )
    if installation.environment:
        found.append(File(ENVIRONMENT_FILE, environment_text(installation.environment), PRIVATE))
    return found


def _service(installation: Installation, common: dict[str, str]) -> str:
    settings, data, store = installation.settings, installation.data, f"{installation.name}-store.service"
    read = [Path(installation.program[0]), settings.directory, *installation.read, *([data] if data else [])]
    at_home = any(path.is_relative_to(home) for path in read for home in HOMES)
    written = (
        f"# The embedded store; pollconsumer store start makes it.\nReadWritePaths={systemd_word(str(data))}"
        if data
        else ""
    )
    environment_file = str(installation.environment_file).replace("%", "%%")
    return render(
        "pollconsumer.service",
        run=systemd(installation.run("--handoff", "deadline", "--launcher", "queue")),
        after_store=f"Requires={store}\nAfter={store}" if data else "",
        environment_file=f"EnvironmentFile={environment_file}" if installation.environment else "",
        start_timeout=max(180, installation.hard_end + installation.stop_grace + 60),
        stop_grace=installation.stop_grace,
        # A launch that finds no server starts one, which must not be killed at its end.
        kill_mode="# A server that the launch had to start stays.\nKillMode=process" if data else "KillMode=mixed",
        memory=installation.memory_mib,
        tasks=installation.tasks,
        protect_home="# The program, the configuration or the store is there.\nProtectHome=read-only"
        if at_home
        else "ProtectHome=yes",
        writable=written,
        **common,
    )
