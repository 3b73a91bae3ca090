"""A job of GitLab CI, which a pipeline schedule starts. Variables are those of the project's CI settings."""

from __future__ import annotations

from pollconsumer.platform_files.calendar import five_minutes_apart
from pollconsumer.platform_files.file_text import quoted, render, shell
from pollconsumer.platform_files.installation import File, Installation


def files(installation: Installation) -> list[File]:
    name, schedule = installation.name, five_minutes_apart(installation.schedule)
    command = installation.run_in_repository("--launcher", "queue", schedule=schedule)
    text = render(
        "gitlab-ci.yml",
        name=name,
        schedule=quoted(schedule),
        set="\n".join(
            f'#   printf %s "${each}" | glab variable set {each} --masked'
            for each in sorted(installation.remote_environment)
        ),
        minutes=installation.ci_minutes(schedule),
        install=quoted(installation.installs),
        run=quoted(shell(command)),
    )
    return [File(f".gitlab/{name}.gitlab-ci.yml", text)]
