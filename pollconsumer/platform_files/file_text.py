"""Templates, and words in the syntax of each kind of file."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template

TEMPLATES = Path(__file__).with_name("templates")
_PLAIN = re.compile(r"[\w./:=@%+,-]+")
_ALONE = re.compile(r"[ \t]*\$(\w+)")


def render(template: str, **values: object) -> str:
    """The template with its ``$names`` replaced. A name alone on its line takes as many lines as its value has, each
    indented as the name is; an empty value takes the line away."""
    lines = []
    for line in (TEMPLATES / template).read_text("utf-8").splitlines():
        alone = _ALONE.fullmatch(line)
        if alone and alone[1] in values:
            indentation = line[: len(line) - len(line.lstrip())]
            lines += [indentation + part for part in str(values[alone[1]]).splitlines()]
        else:
            lines.append(Template(line).substitute(values))
    return "\n".join(lines) + "\n"


def shell(words: Iterable[str]) -> str:
    return shlex.join(words)


def crontab(words: Iterable[str]) -> str:
    """Words for a line of a crontab. Cron ends a command at a percent sign, unless a backslash precedes it, and removes
    that backslash. busybox's crond leaves both to the shell, which removes the backslash outside of quotes, too."""
    return " ".join(_crontab_word(word) for word in words)


def _crontab_word(word: str) -> str:
    text = shlex.quote(word)
    return text.replace("%", r"\%" if text == word else r"'\%'")


def systemd(words: Sequence[str]) -> str:
    """A command line of a unit. systemd refuses quotes in a program's name and replaces no variables in it."""
    via = () if _PLAIN.fullmatch(words[0]) else ("/usr/bin/env",)
    return " ".join(systemd_word(word.replace("$", "$$")) for word in (*via, *words))


def systemd_word(word: str) -> str:
    """A word of a unit's command line."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return text if _PLAIN.fullmatch(text) else f'"{text}"'


def quoted(value: str) -> str:
    """A scalar of YAML or JSON."""
    return json.dumps(value, ensure_ascii=False)


def keyed(key: str, entries: Iterable[str]) -> str:
    """``key`` of YAML with its ``entries``; nothing if there are none."""
    found = [*entries]
    return "\n".join([f"{key}:", *(f"  {line}" for entry in found for line in entry.splitlines())]) if found else ""


def flow(words: Iterable[str]) -> str:
    """A list of YAML, or of a Dockerfile's exec form."""
    return json.dumps([*words], ensure_ascii=False)
