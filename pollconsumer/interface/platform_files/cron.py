"""Debian's cron, cronie, busybox: a crontab.

A second launch at the tick waits for the lease, so either hand-off suits; which cron it is, a launch sees.
"""

from __future__ import annotations

from pollconsumer.interface.platform_files.installation import (
    ENVIRONMENT_FILE,
    PRIVATE,
    File,
    Installation,
    environment_text,
)
from pollconsumer.interface.platform_files.text import crontab, render


def files(installation: Installation) -> list[File]:
    variables = installation.environment
    source = f"set -a; . {crontab([str(installation.environment_file)])}; " if variables else ""
    text = render(
        "crontab",
        mail_to=installation.user,
        data_home=f"XDG_DATA_HOME={installation.data_home}" if installation.data_home else "",
        schedule=installation.schedule,
        environment=source,
        run=crontab(installation.run()),
        move=crontab(installation.move()),
    )
    found = [File("crontab", text)]
    if variables:
        found.append(File(ENVIRONMENT_FILE, environment_text(variables), PRIVATE, printed=False))
    return found
