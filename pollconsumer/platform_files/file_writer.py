"""Writes the files of ``init``."""

from __future__ import annotations

from pathlib import Path

from pollconsumer.core.errors import CannotCreate
from pollconsumer.interface.cli.output import print_line
from pollconsumer.interface.named_files import make_directory, replacement
from pollconsumer.platform_files.installation import File


def write_files(files: list[File], directory: Path, *, force: bool) -> None:
    """Write ``files`` that are new or different. CannotCreate for a directory that cannot be made or written, and,
    before anything is written, for a file that differs, unless ``force``."""
    try:
        there = {file.name: _content(directory / file.name) for file in files}
        changed = [file for file in files if there[file.name] != file.text.encode()]
        for file in changed:
            if there[file.name] is not None and not force:
                raise CannotCreate("file differs", directory / file.name, "--force replaces it, or name another DIR")
        make_directory(directory)
        for file in changed:
            path = directory / file.name
            path.parent.mkdir(0o755, parents=True, exist_ok=True)
            with replacement(path, file.mode) as written:
                written.write(file.text.encode())
    except FileNotFoundError as error:
        raise CannotCreate("no such directory", error.filename, "make it first, or name another DIR") from None
    except OSError as error:
        raise CannotCreate(str(error.filename or directory), error.strerror, "name a directory of yours") from None
    for file in files:
        print_line(f"{'written' if file in changed else 'unchanged'}: {directory / file.name}")


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
