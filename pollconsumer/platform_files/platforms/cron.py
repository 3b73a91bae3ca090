"""Debian's cron, cronie, busybox: a crontab.

A second launch at the tick waits for the lease, so either hand-off suits; which cron it is, a launch sees.
"""

from __future__ import annotations

import shlex

from pollconsumer.platform_files.file_text import crontab, render
from pollconsumer.platform_files.installation import ENVIRONMENT_FILE, PRIVATE, File, Installation, environment_text

HOURLY = "7 * * * *"
"""A schedule for each hour, at a minute that few others have."""


def files(installation: Installation) -> list[File]:
    variables = installation.environment
    text = render(
        "crontab",
        mail_to=installation.user,
        launches="\n".join(_launches(installation)),
        options="".join(f" {each}" for each in map(shlex.quote, installation.options)),
        lines=len(entries(installation)),
        schedule=installation.schedule,
        hourly=HOURLY,
        doctor=_command(installation, installation.doctor()),
        move=_command(installation, installation.move()),
    )
    found = [File("crontab", text)]
    if variables:
        found.append(File(ENVIRONMENT_FILE, environment_text(variables), PRIVATE, printed=False))
    return found


def entries(installation: Installation) -> list[str]:
    """Lines to stand among others of a user: they bring their variables, and set none for what follows them."""
    return [*_launches(installation), f"{HOURLY} {_command(installation, installation.doctor())}"]


def _launches(installation: Installation) -> list[str]:
    """A line for each launch that the platform starts at a tick."""
    return [f"{installation.schedule} {_command(installation, words)}" for words in installation.launches()]


def _command(installation: Installation, words: tuple[str, ...]) -> str:
    """A command with its variables, which no line of the crontab sets: busybox's crond ignores all but SHELL, PATH and
    MAILTO."""
    source = f"set -a; . {crontab([str(installation.environment_file)])}; " if installation.environment else ""
    home = ("env", f"XDG_DATA_HOME={installation.data_home}") if installation.data_home else ()
    return f"{source}exec {crontab([*home, *words])}"
