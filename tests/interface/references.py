"""What ``docs/reference/`` holds, made from the program: commands, settings, the API, keys of ``--json``, the store's
keyspace, the rights of its users, the endpoint's OpenAPI document; what config.toml says of its keys; and the table of
settings that commands read.

``python -m tests.interface.references`` writes it again.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import click

from pollconsumer.interface.cli.group import group
from pollconsumer.interface.settings.declared import Settings
from pollconsumer.interface.settings.model import READ_DURATION, READ_KEPT_SIZE, TABLE
from pollconsumer.interface.settings.names import variable
from tests.interface.api_page import api
from tests.interface.field_table import described, meaning, written_table
from tests.interface.json_page import json_keys
from tests.interface.keyspace_page import keyspace
from tests.interface.rights_page import rights_page
from tests.web.openapi import openapi_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from pollconsumer.interface.settings.model import DeclaredField

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
CONFIG = Path(__file__).parents[2] / "config.toml"
MADE = "Made by `python -m tests.interface.references`.\n"
WIDTH = 110


def references() -> dict[Path, str]:
    """Path → text."""
    # In a process of its own: click keeps what a command's first look at its help showed, in a test as well.
    words = [sys.executable, "-c", "from tests.interface.references import commands; print(commands(), end='')"]
    told = subprocess.run(words, cwd=REFERENCE.parents[1], capture_output=True, text=True, check=True).stdout
    pages = {"commands": told, "settings": settings(), "api": api(), "json": json_keys()}
    pages |= {"keyspace": keyspace(), "rights": rights_page(MADE.strip())}
    made = {REFERENCE / f"{name}.md": text for name, text in pages.items()}
    return made | {REFERENCE / "openapi.json": openapi_text(), CONFIG: config(), TABLE: written_table()}


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
    key, said = setting.key, meaning(field)
    return f"| `{key}` | {default and f'`{default}`'} | {values} | `{variable(path)}` | {said} |"


def written(setting: DeclaredField) -> str:
    """The default as the file would have it; empty if there is none."""
    if setting.default in (None, "", (), {}):
        return ""
    if setting.reads == READ_KEPT_SIZE:
        return f'"{setting.default // 1024}KiB"'
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
    said = meaning(declared()[section][name]).replace("`", "")
    return f"{f'{off}{name} = {value}':<34} # {said}"


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    TABLE.write_text(written_table())  # the page of commands is made by a process that reads it
    for path, text in references().items():
        path.write_text(text)
