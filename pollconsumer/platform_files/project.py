"""``init project``: begins a project, and says what to type next."""

from __future__ import annotations

import os
from pathlib import Path

from pollconsumer.core.errors import CannotCreate
from pollconsumer.interface.cli.output import print_lines
from pollconsumer.interface.settings.load import absolute
from pollconsumer.interface.settings.writable import refuse_writable_modules
from pollconsumer.platform_files.file_text import shell
from pollconsumer.platform_files.file_writer import write_files
from pollconsumer.platform_files.project_files import files

NEXT = """
pollconsumer check                                  # validates the configuration
pollconsumer enqueue mail.send '{"to": "ada@example.org"}'
pollconsumer -v run --until-empty                   # one launch, which ends when the queue is empty
pytest                                              # needs pytest and pollconsumer[testing]
pollconsumer init cron --install                    # a launch each minute, from your crontab"""


def begin(directory: Path) -> None:
    """Write the files of a project. CannotCreate if one is there already; ConfigurationError for a directory whose
    modules no launch imports."""
    place = absolute(directory)
    begun = files(place)
    for file in begun:
        if os.path.lexists(directory / file.name):
            raise CannotCreate(
                "file exists", directory / file.name, "it is kept, and no other written: name another DIR"
            )
    if os.path.isdir(place):  # noqa: PTH112  it never raises
        refuse_writable_modules(place)
    write_files(begun, directory, force=False)
    there = [] if place == Path.cwd() else [f"cd {shell([str(directory)])}"]
    print_lines(["", "next:", *there, *NEXT.strip().splitlines()])
