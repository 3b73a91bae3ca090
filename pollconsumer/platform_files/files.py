"""Files of a platform: rendered from templates, with words quoted in the syntax of each kind of file, and written."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from pollconsumer.core.errors import CannotCreate
from pollconsumer.interface.cli.output import print_line
from pollconsumer.interface.named_files import make_directory, replacement

TEMPLATES = Path(__file__).with_name("templates")
_UNQUOTED = re.compile(r"[\w./:=@%+,-]+")
PUBLIC, PRIVATE, EXECUTABLE = 0o644, 0o600, 0o755
_ALONE = re.compile(r"[ \t]*\$(\w+)")


class File(NamedTuple):
    """A file of a platform. ``name``: a relative path. ``comment``: what begins a comment in the file. ``printed``:
    False for a file that is only written, since it may hold a password and the platform's other file is piped."""

    name: str
    text: str
    mode: int = PUBLIC
    comment: str = "#"
    printed: bool = True


def render(template: str, **values: object) -> str:
    """The template with its ``$names`` replaced. A value whose name stands alone on a line may have several lines,
    which get the indentation of that line; if the value is empty, the line is removed."""
    lines = []
    for line in (TEMPLATES / template).read_text("utf-8").splitlines():
        alone = _ALONE.fullmatch(line)
        if alone and alone[1] in values:
            indentation = line[: len(line) - len(line.lstrip())]
            lines += [indentation + part for part in str(values[alone[1]]).splitlines()]
        else:
            lines.append(Template(line).substitute(values))
    return "\n".join(lines) + "\n"


def crontab(words: Iterable[str]) -> str:
    """Words as a command in a crontab. In cron a percent sign ends the command unless a backslash precedes it, which
    cron removes. busybox's crond leaves both characters to the shell, which removes the backslash outside of quotes."""
    return " ".join(_crontab_word(word) for word in words)


def _crontab_word(word: str) -> str:
    text = shlex.quote(word)
    return text.replace("%", r"\%" if text == word else r"'\%'")


def systemd(words: Sequence[str]) -> str:
    """A command line of a unit. systemd allows neither quotes nor variables in the program's name."""
    via = () if _UNQUOTED.fullmatch(words[0]) else ("/usr/bin/env",)
    return " ".join(systemd_word(word.replace("$", "$$")) for word in (*via, *words))


def systemd_word(word: str) -> str:
    """A word of a unit's command line."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return text if _UNQUOTED.fullmatch(text) else f'"{text}"'


def quoted(value: str | Sequence[str]) -> str:
    """A string of YAML or JSON. For a list it is an array, valid in a Dockerfile's exec form, too."""
    return json.dumps(value, ensure_ascii=False)


def keyed(key: str, entries: Iterable[str]) -> str:
    """``key`` of YAML and, below it, its ``entries``. Empty if there are no entries."""
    found = [*entries]
    return "\n".join([f"{key}:", *(f"  {line}" for entry in found for line in entry.splitlines())]) if found else ""


def write_files(files: list[File], directory: Path, *, force: bool) -> None:
    """Write those ``files`` that are new or have changed. CannotCreate for a directory that cannot be created or
    written. Without ``force`` also CannotCreate, before anything is written, if a file exists with other content."""
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
