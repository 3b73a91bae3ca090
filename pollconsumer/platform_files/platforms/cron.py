"""Debian's cron, cronie, busybox: a crontab.

A second launch at the tick waits for the lease, so either hand-off suits; which cron it is, a launch sees.
"""

from __future__ import annotations

from pollconsumer.platform_files.file_text import crontab, render
from pollconsumer.platform_files.installation import ENVIRONMENT_FILE, PRIVATE, File, Installation, environment_text

HOURLY = "7 * * * *"
"""A schedule for each hour, at a minute that few others have."""


def files(installation: Installation) -> list[File]:
    variables = installation.environment
    text = render(
        "crontab",
        mail_to=installation.user,
        data_home=f"XDG_DATA_HOME={installation.data_home}" if installation.data_home else "",
        schedule=installation.schedule,
        hourly=HOURLY,
        environment=_source(installation),
        run=crontab(installation.run()),
        doctor=crontab(installation.doctor()),
        move=crontab(installation.move()),
    )
    found = [File("crontab", text)]
    if variables:
        found.append(File(ENVIRONMENT_FILE, environment_text(variables), PRIVATE, printed=False))
    return found


def entries(installation: Installation) -> list[str]:
    """Lines to stand among others of a user: they bring their variables, and set none for what follows them."""
    home = ("env", f"XDG_DATA_HOME={installation.data_home}") if installation.data_home else ()
    commands = ((installation.schedule, installation.run()), (HOURLY, installation.doctor()))
    source = _source(installation)
    return [f"{schedule} {source}exec {crontab([*home, *words])}" for schedule, words in commands]


def _source(installation: Installation) -> str:
    """What a line begins with, if variables are in force."""
    file = crontab([str(installation.environment_file)])
    return f"set -a; . {file}; " if installation.environment else ""
