"""A workflow of GitHub Actions. Its store and other variables are secrets of the repository."""

from __future__ import annotations

from pathlib import Path

from pollconsumer.platform_files.calendar import for_github
from pollconsumer.platform_files.file_text import quoted, render, shell
from pollconsumer.platform_files.installation import File, Installation

MINUTES_TO_INSTALL = 10


def files(installation: Installation) -> list[File]:
    name, schedule = installation.name, for_github(installation.schedule)
    directory = _in_repository(installation.settings.directory)
    command = installation.run_at("pollconsumer", directory, "--until-empty", "--launcher", "queue", schedule=schedule)
    variables = sorted(installation.remote_environment)
    text = render(
        "pollconsumer.yml",
        name=name,
        schedule=quoted(schedule),
        minutes=-(-installation.hard_end // 60) + MINUTES_TO_INSTALL,
        install=quoted(f"pip install --requirement {shell([str(Path(directory) / 'requirements.txt')])}"),
        run=quoted(f"exec {shell(command)}"),
        environment="\n".join(f"{each}: ${{{{ secrets.{each} }}}}" for each in variables),
    )
    return [File(f".github/workflows/{name}.yml", text)]


def _in_repository(directory: Path) -> str:
    """The path of ``directory`` from the top of its repository, which is elsewhere in another checkout."""
    top = next((each for each in (directory, *directory.parents) if (each / ".git").exists()), directory)
    return str(directory.relative_to(top))
