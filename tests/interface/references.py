"""What ``docs/reference/`` holds, made from the program: commands, settings, the API, keys of ``--json``.

``python -m tests.interface.references`` writes it again.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pollconsumer
from pollconsumer.interface.cli.group import group
from pollconsumer.interface.settings import model
from pollconsumer.interface.settings.rules import variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.site import Site

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
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
    return {REFERENCE / f"{name}.md": text for name, text in pages.items()}


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
    parts = [f"# Settings\n\n{MADE}\nHow they are given: [settings](../settings.md).", _section("", model.Settings)]
    parts += [_section(name, kind) for name, kind in model.SECTIONS.items()]
    parts += [_section(f"{name}.NAME", kind) for name, kind in model.TABLES.items()]
    return "\n\n".join(parts) + "\n"


def _section(path: str, kind: Any) -> str:
    said = meanings(kind)
    lines = [f"## `[{path}]`" if path else "## At the top", "", "| Key | Default | Variable | |", "|---|---|---|---|"]
    for each in dataclasses.fields(kind):
        if each.name in (*model.SECTIONS, *model.TABLES, *model.PLACE):
            continue
        name = variable(f"{path}.{each.name}".lstrip("."))
        lines.append(f"| `{each.name}` | {_default(each)} | `{name}` | {said[each.name]} |")
    return "\n".join(lines)


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if value is dataclasses.MISSING or value in (None, "", (), {}):
        return ""
    if "Duration" in str(field.type):
        return f"`{value:g}s`"
    return f"`{json.dumps(value)}`"


def meanings(kind: Any) -> dict[str, str]:
    """By field, the text that follows it in the source."""
    (parsed,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(parsed, ast.ClassDef)
    found = {}
    for before, after in zip(parsed.body, parsed.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            found[before.target.id] = _prose(ast.literal_eval(after.value))
    return found


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


def api() -> str:
    parts = [f"# The API\n\n{MADE}"]
    for name in pollconsumer.__all__:
        thing = getattr(pollconsumer, name)
        parts.append(f"## `{name}`\n\n{_first(thing)}")
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            parts.append("\n".join(_members(thing)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _members(kind: type) -> Iterator[str]:
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        if isinstance(member, property):
            yield f"- `{name}`: {_first(member)}"
        else:
            parameters = [*inspect.signature(member).parameters.values()][1:]
            yield f"- `{name}({', '.join(_named(each) for each in parameters)})`: {_first(member)}"


def _named(parameter: inspect.Parameter) -> str:
    stars = (
        "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    )
    default = "" if parameter.default is inspect.Parameter.empty else f"={parameter.default!r}"
    return f"{stars}{parameter.name}{default}"


def _first(thing: object) -> str:
    """The first paragraph of its docstring."""
    return _prose((inspect.getdoc(thing) or "").partition("\n\n")[0])


def _prose(text: str) -> str:
    """In one line, as Markdown."""
    return " ".join(text.replace("``", "`").split())


if __name__ == "__main__":
    from tests.site import Site

    REFERENCE.mkdir(exist_ok=True)
    site = Site()
    try:
        for path, text in references(site).items():
            path.write_text(text)
    finally:
        site.close()
