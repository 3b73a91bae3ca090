"""A triggered WebJob of Azure App Service on Linux: its folder, and settings of the app."""

from __future__ import annotations

import json

from pollconsumer.platform_files.calendar import for_azure
from pollconsumer.platform_files.file_text import render, shell
from pollconsumer.platform_files.installation import EXECUTABLE, PRIVATE, File, Installation

HOME = "/home/site"
PYTHON, DIRECTORY = f"{HOME}/pollconsumer/bin/python", f"{HOME}/pollconsumer"
"""Places on the app's persistent share."""
OPTIONS = ("--handoff", "deadline", "--launcher", "drop", "--min-margin", "2s")


def files(installation: Installation) -> list[File]:
    """The files of the job. Only settings.job and run.sh are in its folder: Kudu scans it at each start."""
    if installation.settings.directory.is_relative_to(HOME):  # generated there
        command = installation.run(*OPTIONS)
    else:
        command = (PYTHON, "-m", "pollconsumer", *installation.run_at("", DIRECTORY, *OPTIONS)[1:])
    job = {
        "schedule": for_azure(installation.schedule),  # in UTC, unless WEBSITE_TIME_ZONE says otherwise
        # A triggered job gets no shutdown file, only this time until it is killed: it must exceed a launch.
        "stopping_wait_time": installation.hard_end + 5,
        "is_in_place": False,  # in place, each start would kill a launch that is alive
    }
    app = {
        "WEBJOBS_IDLE_TIMEOUT": str(installation.hard_end + 60),
        "WEBJOBS_HISTORY_SIZE": "200",
        **(installation.environment if installation.settings.is_embedded else installation.remote_environment),
    }
    name = installation.name
    return [
        File(f"{name}/settings.job", f"{json.dumps(job)}\n", comment="//"),
        File(f"{name}/run.sh", render("run.sh", run=shell(command)), EXECUTABLE),
        File("appsettings.json", f"{json.dumps(app, indent=2)}\n", PRIVATE, comment="//"),
    ]
