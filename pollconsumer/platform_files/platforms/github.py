"""A workflow of GitHub Actions. Its store and other variables are secrets of the repository."""

from __future__ import annotations

from pollconsumer.platform_files.calendar import five_minutes_apart
from pollconsumer.platform_files.file_text import quoted, render, shell
from pollconsumer.platform_files.installation import File, Installation


def files(installation: Installation) -> list[File]:
    name, schedule = installation.name, five_minutes_apart(installation.schedule)
    command = installation.run_in_repository("--launcher", "queue", schedule=schedule)
    variables = sorted(installation.remote_environment)
    text = render(
        "pollconsumer.yml",
        name=name,
        schedule=quoted(schedule),
        minutes=installation.ci_minutes(schedule),
        install=quoted(installation.installs),
        run=quoted(f"exec {shell(command)}"),
        environment="\n".join(f"{each}: ${{{{ secrets.{each} }}}}" for each in variables),
    )
    return [File(f".github/workflows/{name}.yml", text)]
