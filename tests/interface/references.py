"""What ``docs/reference/`` holds, made from the program: commands, settings, the API, keys of ``--json``, the store's
keyspace, the rights of its users; and what config.toml says of its keys.

``python -m tests.interface.references`` writes it again.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import click

from pollconsumer.interface.cli.group import group
from pollconsumer.interface.settings.declaration.declared import Settings
from pollconsumer.interface.settings.declaration.field_table import described
from pollconsumer.interface.settings.fields import READ_DURATION
from pollconsumer.interface.settings.names import variable
from tests.interface.api_page import api
from tests.interface.keyspace_page import keyspace
from tests.interface.rights_page import rights_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

    from pollconsumer.interface.settings.fields import DeclaredField
    from tests.site import Site

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
CONFIG = Path(__file__).parents[2] / "config.toml"
MADE = "Made by `python -m tests.interface.references`.\n"
WIDTH = 110
PRINTING = {
    'enqueue record \'{"name": "a"}\' --id a --header trace=4f2': "a message that is accepted",
    "enqueue fatal": None,
    'recurrences add hourly record \'{"name": "b"}\' --every 1h --first now': None,
    "run --until-empty": None,
    "run": None,
    "status a": "a message",
    "status": "the overview",
    "list": "messages",
    "dead list": "dead letters",
    "queue list": "queues",
    "recurrences list": "recurrences",
    "recurrences history hourly": "occurrences of a recurrence",
    "launches": "the ledger",
    "lease show": "leases",
    "check": "the configuration",
    "doctor": "findings",
    "store status": "the embedded server",
    "store path": "its directory",
}
"""Commands in the order in which they are run, `run` beside all that follow; of those with a title, keys are listed."""


def references(site: Site) -> dict[Path, str]:
    """Path → text. What commands print is printed at ``site``."""
    # In a process of its own: click keeps what a command's first look at its help showed, in a test as well.
    words = [sys.executable, "-c", "from tests.interface.references import commands; print(commands(), end='')"]
    told = subprocess.run(words, cwd=REFERENCE.parents[1], capture_output=True, text=True, check=True).stdout
    pages = {"commands": told, "settings": settings(), "api": api(), "json": json_keys(site)}
    pages |= {"keyspace": keyspace(), "rights": rights_page(MADE.strip())}
    return {REFERENCE / f"{name}.md": text for name, text in pages.items()} | {CONFIG: config()}


def commands() -> str:
    helps = "\n\n".join(f"## {name}\n\n```text\n{text}\n```" for name, text in _helps(group, "pollconsumer"))
    return f"# Commands\n\n{MADE}\n{helps}\n"


def _helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    widths: dict[str, Any] = {"max_content_width": WIDTH, "terminal_width": WIDTH}
    context = click.Context(command, info_name=name, **widths, **group.context_settings)
    yield name, command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _helps(found, f"{name} {each}")


def settings() -> str:
    parts = [f"# Settings\n\n{MADE}\nHow they are given: [settings](../settings.md)."]
    for name, fields in declared().items():
        lines = [f"## `[{name}]`" if name else "## At the top", ""]
        lines += ["| Key | Default | Values | Variable | |", "|---|---|---|---|---|"]
        lines += [_row(f"{name}.{key}".lstrip("."), field) for key, field in fields.items()]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def declared() -> dict[str, dict[str, FieldInfo]]:
    """The fields of each section, of the file itself under the empty name, of tables under ``table.NAME``."""
    found: dict[str, dict[str, FieldInfo]] = {"": {}}
    for name, field in Settings.model_fields.items():
        kind: Any = field.annotation
        if get_origin(kind) is dict:
            found[f"{name}.NAME"] = get_args(kind)[1].model_fields
        elif hasattr(kind, "model_fields"):
            found[name] = kind.model_fields
        else:
            found[""][name] = field
    return found


def _row(path: str, field: FieldInfo) -> str:
    setting = described().find(path)
    assert setting is not None
    values = ", ".join(f"`{word}`" for word in setting.words) or setting.range
    default = written(setting)
    key, said = setting.key, field.description
    return f"| `{key}` | {default and f'`{default}`'} | {values} | `{variable(path)}` | {said} |"


def written(setting: DeclaredField) -> str:
    """The default as the file would have it; empty if there is none."""
    if setting.default in (None, "", (), {}):
        return ""
    return f'"{setting.default:g}s"' if setting.reads == READ_DURATION else json.dumps(setting.default)


def config() -> str:
    """config.toml, whose choice of keys and whose examples stand; defaults and comments are those of the fields."""
    section, lines = "", list[str]()
    for line in CONFIG.read_text("utf-8").splitlines():
        if header := re.match(r"(?:# )?\[(\w+)(\.\w+)?]", line):
            section = header[1] + (".NAME" if header[2] else "")
        key = re.match(r"(# )?(\w+) = ((?:[^#\"]|\"[^\"]*\")*)", line)
        lines.append(_commented(section, line, key) if key else line)
    return "\n".join(lines) + "\n"


def _commented(section: str, line: str, key: re.Match[str]) -> str:
    off, name, value = key[1] or "", key[2], key[3].strip()
    setting = described().find(f"{section}.{name}".lstrip("."))
    assert setting is not None, line
    if not off and (default := written(setting)):
        value = default
    said = (declared()[section][name].description or "").replace("`", "")
    return f"{f'{off}{name} = {value}':<34} # {said}"


def json_keys(site: Site) -> str:
    """Of what the commands print on a site where a message was completed, one is dead, and a recurrence is due."""
    parts = [f"# Keys of `--json`\n\n{MADE}\nTimes are ISO 8601 in UTC, durations are `…_seconds`."]
    for line, title in PRINTING.items():
        words = shlex.split(line)
        if line == "run":
            site.await_holder(site.start("run").pid)
            continue
        if title is None:
            assert site.command(*words).returncode == 0
            continue
        printed = json.loads(site.command(*words, "--json").stdout)
        keys = "\n".join(_keys(printed[0] if isinstance(printed, list) else printed))
        parts.append(f"## `{line}`: {title}\n\n```text\n{keys}\n```")
    return "\n\n".join(parts) + "\n"


def _keys(printed: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for name, value in printed.items():
        yield indent + name
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict) and name not in ("payload", "result", "headers"):
            yield from _keys(inner, indent + "  ")


if __name__ == "__main__":
    from tests.site import Site

    REFERENCE.mkdir(exist_ok=True)
    site = Site()
    try:
        for path, text in references(site).items():
            path.write_text(text)
    finally:
        site.close()
