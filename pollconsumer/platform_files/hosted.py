"""Files of platforms that, for each launch, run the code from a repository or an app's directory, without an image."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

from pollconsumer.platform_files.calendar import every_five_minutes, for_azure, for_heroku, with_sunday_0
from pollconsumer.platform_files.files import EXECUTABLE, PRIVATE, File, keyed, quoted, render
from pollconsumer.platform_files.installation import STORE, Installation

HOME = "/home/site"
PYTHON, DIRECTORY = f"{HOME}/pollconsumer/bin/python", f"{HOME}/pollconsumer"
"""Paths on the app's persistent share."""
OPTIONS = ("--handoff", "deadline", "--launcher", "drop", "--min-margin", "2s")
INTERVALS = {
    "*/10 * * * *": "every 10 minutes",
    "0 * * * *": "every hour at :00",
    "0 0 * * *": "every day at 00:00 UTC",
}


def azure_files(installation: Installation) -> list[File]:
    """A triggered WebJob of App Service on Linux: its folder, and settings of the app. The folder has only settings.job
    and run.sh, since Kudu searches it at each start."""
    if installation.settings.directory.is_relative_to(HOME):  # generated there
        command = installation.run(*OPTIONS)
    else:
        command = (PYTHON, "-m", "pollconsumer", *installation.run_at("", DIRECTORY, *OPTIONS)[1:])
    job = {
        "schedule": for_azure(installation.schedule),  # in UTC, unless WEBSITE_TIME_ZONE says otherwise
        # A triggered job gets no shutdown file. It is killed after this time, which must be longer than a launch.
        "stopping_wait_time": installation.hard_end + 5,
        "is_in_place": False,  # if it were in place, each start would kill a running launch
    }
    app = {
        "WEBJOBS_IDLE_TIMEOUT": str(installation.hard_end + 60),
        "WEBJOBS_HISTORY_SIZE": "200",
        **(installation.environment if installation.settings.is_embedded else installation.remote_environment),
    }
    name = installation.name
    return [
        File(f"{name}/settings.job", f"{json.dumps(job)}\n", comment="//"),
        File(f"{name}/run.sh", render("run.sh", run=shlex.join(command)), EXECUTABLE),
        File("appsettings.json", f"{json.dumps(app, indent=2)}\n", PRIVATE, comment="//"),
    ]


def github_files(installation: Installation) -> list[File]:
    """A workflow of GitHub Actions. Its store and other variables are secrets of the repository."""
    name, schedule = installation.name, every_five_minutes(installation.schedule)
    command = installation.run_in_repository("--launcher", "queue", schedule=schedule)
    text = installation.render(
        "pollconsumer.yml",
        schedule=quoted(schedule),
        minutes=installation.ci_minutes(schedule),
        run=quoted(f"exec {shlex.join(command)}"),
        environment="\n".join(f"{each}: ${{{{ secrets.{each} }}}}" for each in installation.remote_environment),
    )
    return [File(f".github/workflows/{name}.yml", text)]


def gitlab_files(installation: Installation) -> list[File]:
    """A job of GitLab CI that a pipeline schedule starts. Its variables are in the project's CI settings."""
    name, schedule = installation.name, every_five_minutes(installation.schedule)
    command = installation.run_in_repository("--launcher", "queue", schedule=schedule)
    text = installation.render(
        "gitlab-ci.yml",
        schedule=quoted(schedule),
        set="\n".join(
            map('#   printf %s "${0}" | glab variable set {0} --masked'.format, installation.remote_environment)
        ),
        minutes=installation.ci_minutes(schedule),
        run=quoted(shlex.join(command)),
    )
    return [File(f".gitlab/{name}.gitlab-ci.yml", text)]


def heroku_files(installation: Installation) -> list[File]:
    """A script for Heroku Scheduler, whose jobs a person creates in its dashboard. Variables are config vars."""
    schedule = for_heroku(installation.schedule)
    embedded = installation.settings.is_embedded and installation.settings.client is None
    variables = installation.environment if embedded else installation.remote_environment
    command = installation.run_in_repository("--linger", "30s", "--launcher", "drop", schedule=schedule)
    text = render(
        "heroku.sh",
        interval=INTERVALS[schedule],
        script=shlex.join(["sh", str(Path(installation.in_repository) / "heroku.sh")]),
        set="".join(f" {each}=…" for each in sorted(variables)) or " (none is needed)",
        store=render("heroku.store", store=STORE) if embedded else "",
        run=shlex.join(command),
    )
    return [File("heroku.sh", text, EXECUTABLE)]


def render_files(installation: Installation) -> list[File]:
    """A Blueprint of Render: a cron job, and a Key Value service in place of an embedded store."""
    # A run takes time to start, and is delayed while the run before is active.
    target, embedded = installation.in_repository, installation.settings.is_embedded
    command = installation.run_at("pollconsumer", target, "--handoff", "deadline", "--launcher", "queue")
    text = installation.render(
        "render.yaml",
        store=installation.render("render.keyvalue") if embedded and STORE in installation.remote_environment else "",
        schedule=quoted(with_sunday_0(installation.schedule)),
        run=quoted(f"exec {shlex.join(command)}"),
        environment=keyed("envVars", _variables(installation)),
    )
    return [File("render.yaml", text)]


def _variables(installation: Installation) -> Iterator[str]:
    for each in installation.remote_environment:
        if each == STORE and installation.settings.is_embedded:
            service = f"name: {installation.name}-store\n    type: keyvalue\n    property: connectionString"
            yield f"- key: {each}\n  fromService:\n    {service}"
        else:
            yield f"- key: {each}\n  sync: false            # asked for in the dashboard, and kept there"


def railway_files(installation: Installation) -> list[File]:
    """A cron service of Railway, and a Redis in place of an embedded store."""
    name, schedule = installation.name, every_five_minutes(installation.schedule)
    command = installation.run_in_repository("--linger", "30s", "--launcher", "drop", schedule=schedule)
    values = dict.fromkeys(installation.remote_environment, "preserve()")
    brings_store = installation.settings.is_embedded and STORE in values
    if brings_store:
        values[STORE] = "store.env.REDIS_URL"
    kept = [variable for variable, value in values.items() if value == "preserve()"]
    text = installation.render(
        "railway.ts",
        set="\n".join(f"//   railway variable set {each}=… --service {name}" for each in kept),
        redis=" redis," if brings_store else "",
        store=render("railway.redis", name=quoted(f"{name}-store")) if brings_store else "",
        start=quoted(shlex.join(command)),
        schedule=quoted(schedule),
        environment="\n".join(f"{variable}: {value}," for variable, value in values.items()),
        resources="store, launch" if brings_store else "launch",
    )
    return [File(f".railway/{name}.ts", text, comment="//")]
