"""What docs/reference/compatibility.md promises, a line each: read off docs/reference/, annotations, and what metrics,
pings and alarms tell.

A line is a name, or one thing about a name that others rely on: a default, a choice, a range, an argument. So what is
gone or changed is a line that is no longer there, and an addition is one more.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pollconsumer.core.choices import Dialect
from pollconsumer.core.lifecycle import State
from pollconsumer.core.window import StopReason
from pollconsumer.interface.cli.group import group
from pollconsumer.runtime.launch.pings import RunEnd, first, last
from pollconsumer.watching.alarms import ReportedFinding
from pollconsumer.watching.facts import Finding
from tests.compatibility.promised_types import api_types, http_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
KEDA = REFERENCE / "keda.md"
MONITOR = "https://monitor/CHECK"
SECTION = re.compile(r"^##+ ([^\n]+)\n(.*?)(?=^##+ |\Z)", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"^  (-.*?)(?:  |$)", re.MULTILINE)
SETTING = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \| `(\w+)` \|", re.MULTILINE)
MEMBER = re.compile(r"^- `(\w+)(?:\((.*?)\))?`:(?: `.*`, (required)$)?", re.MULTILINE)
READ_BY_KEDA = ("ready", "ready_by_priority")
IS_REQUIRED = " is required"
"""Ends a second line of an option that must be given."""


def sections(page: str) -> dict[str, str]:
    return dict(SECTION.findall((REFERENCE / f"{page}.md").read_text("utf-8")))


def promised_lines(metrics: str) -> list[str]:
    """``metrics``: what the command of that name prints."""
    lines = [
        *_commands(),
        *command_arguments(group, "pollconsumer"),
        *_settings(),
        *names((REFERENCE / "api.md").read_text("utf-8")),
        *api_types(),
        *_json(),
        *_words(),
        *http_lines(json.loads((REFERENCE / "openapi.json").read_text("utf-8")), IS_REQUIRED),
        *_programs(),
        *_alarms(),
        *_keda(),
        *_metrics(metrics),
        *_pings(),
    ]
    return sorted({*lines})


def _commands() -> Iterator[str]:
    for name, text in sections("commands").items():
        yield f"command {name}"
        _, _, options = text.partition("\nOptions:\n")
        for spelt in OPTION.findall(options.partition("\n\n")[0]):
            flags = re.findall(r"(?<!\S)--?[a-z][\w-]*", spelt)
            choices = [each for found in re.findall(r"\[([\w|]+)\]", spelt) for each in found.split("|")]
            yield from (f"option {name} {flag}" for flag in flags)
            yield f"option {name} {flags[-1]}: {'takes a value' if spelt.split()[-1] != flags[-1] else 'a switch'}"
            yield from (f"option {name} {flags[-1]} {choice}" for choice in choices)
        for codes in re.findall(r"^    (\d[\d, ]*?)  ", text.partition("Exit codes:\n")[2], re.MULTILINE):
            yield from (f"exit code {code}" for code in codes.split(", "))


def command_arguments(command: click.Command, name: str) -> Iterator[str]:
    """What stands after the options of a command, and of those below it, in its order."""
    taken = [each for each in command.params if isinstance(each, click.Argument)]
    for number, each in enumerate(taken, 1):
        yield f"argument {name}: {number}"
        if each.nargs == -1:
            yield f"argument {name}: {number} may be several"
        if each.required:
            yield f"argument {name}: {number}{IS_REQUIRED}"
        if isinstance(each.type, click.Choice):
            yield from (f"argument {name}: {number} may be {word}" for word in each.type.choices)
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from command_arguments(found, f"{name} {below}")


def _settings() -> Iterator[str]:
    for title, text in sections("settings").items():
        section = "".join(re.findall(r"`\[(.*)\]`", title))
        for key, default, values, variable in SETTING.findall(text):
            path = f"{section}.{key}".lstrip(".")
            yield f"setting {path}: variable {variable}"
            yield f"setting {path}: default {default.strip('`') or 'none'}"
            choices = re.findall(r"`([^`]+)`", values)
            yield from (f"setting {path}: {each}" for each in choices or [f"range {values}"] if values)


def names(page: str) -> Iterator[str]:
    """The lines of docs/reference/api.md."""
    for title, text in SECTION.findall(page):
        if not title.startswith("`"):
            continue  # of several names
        kind = title.strip("`")
        yield f"name {kind}"
        for member, parameters, required in MEMBER.findall(text):
            yield f"name {kind}.{member}"
            if required:
                yield f"name {kind}.{member}{IS_REQUIRED}"
            taken = [each for each in re.split(r", (?=[\w*/])", parameters) if each not in ("", "*", "/")]
            yield from (f"name {kind}.{member}: {each}" for each in taken)


def _json() -> Iterator[str]:
    """Keys, each with those that it is in, and their types."""
    for title, text in sections("json").items():
        command = title.partition("`: ")[0].strip("`")
        for key, kind in re.findall(r"^\| `([\w.]+)` \| (.*?) \|", text, re.MULTILINE):
            yield f"json {command}: {key}"
            yield f"json {command}: {key} is {kind}"


def _words() -> Iterator[str]:
    yield from (f"json stop_reason: {reason}" for reason in StopReason)
    yield from (f"json state: {state}" for state in State)


def _programs() -> Iterator[str]:
    """The variables that a program gets, beside those of the launch's environment."""
    text = sections("programs")["Environment"]
    for row in re.findall(r"^\| (`[A-Z_`, ]+`) \|", text, re.MULTILINE):
        yield from (f"program variable POLLCONSUMER_{name}" for name in re.findall(r"[A-Z_]+", row))
    inherited = re.findall(r"^(?:`[A-Z_*]+` ?)+$", text, re.MULTILINE)
    yield from (f"program variable {name} is inherited" for name in re.findall(r"[A-Z_*]+", " ".join(inherited)))


def _alarms() -> Iterator[str]:
    """The keys of the JSON, at the beginning and at the end of a finding."""
    finding = Finding("NAME", "SUBJECT", "WHAT", "VALUE", "FIX")
    for ended in (0, 1):
        texts = ReportedFinding(finding, 0, 0, "", ended).texts(1, "NAMESPACE", "PAGE")
        yield from (f"alarm {texts['state']}: {key}{' is null' if text is None else ''}" for key, text in texts.items())


def _pings() -> Iterator[str]:
    """What a monitor is sent by a run that begins, and by one that ends."""
    for dialect in Dialect:
        if dialect is not Dialect.AUTO:
            end = RunEnd(3, "LINE", 1.5, {"count": 2})
            for when, ping in (
                ("begins", first(MONITOR, dialect, "RUN")),
                ("ends", last(MONITOR, dialect, "RUN", end)),
            ):
                sent = (
                    "nothing" if ping is None else ping.url if ping.body is None else f"{ping.url} {ping.body.decode()}"
                )
                yield f"ping {dialect} {when}: {sent}"


def _keda() -> Iterator[str]:
    rule = re.search(r"^ACL SETUSER keda (.*?)\n```", KEDA.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert rule is not None
    yield from (f"right of keda {word}" for word in rule[1].split() if word.startswith(("+", "~")))
    text = (REFERENCE / "keyspace.md").read_text("utf-8")
    for word in READ_BY_KEDA:
        row = re.search(rf"^\| `{word}` \| `(\w+)` \| (\w+)", text, re.MULTILINE)
        assert row is not None
        yield f"key {{NAMESPACE:QUEUE}}:{row[1]} {row[2]}"


def _metrics(printed: str) -> Iterator[str]:
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", printed, re.MULTILINE):
        yield f"metric {name} {kind}"
        sample = re.search(rf"^{name}(?:_bucket)?{{(.*)}}", printed, re.MULTILINE)
        yield from (f"metric {name}: label {label}" for label in re.findall(r'(\w+)="', sample[1] if sample else ""))


def may_go(line: str) -> bool:
    """Whether a line may go, since nobody relies on a demand."""
    return line.startswith("right ") or line.endswith(IS_REQUIRED)


def newly_required(now: list[str], promised: list[str]) -> list[str]:
    """Arguments and options that a promised function has not had before, and that it cannot be called without; rights
    that nobody has granted yet."""
    added = [line for line in now if line not in promised]
    return [line for line in added if line.startswith("right ") or _is_required(line, promised)]


def _is_required(line: str, promised: list[str]) -> bool:
    function, _, argument = line.partition(": ")
    if function.startswith(("argument ", "http ")):
        kind, _, called = function.partition(" ")
        known = f"command {called}" if kind == "argument" else f"{function} answers 401"
        return line.endswith(IS_REQUIRED) and known in promised
    if argument.startswith("options"):
        return line.endswith(IS_REQUIRED) and f"{function}: options" in promised
    return line.startswith("name ") and function in promised and not re.search(r"^\*|=", argument)
