"""Whatever stands in the store, in a definition or on the command line: no command lets it act on a terminal."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
import pytest

import pollconsumer
from pollconsumer.core.messages.continuation import packed
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.interface import cli
from pollconsumer.interface.cli.group import group
from pollconsumer.interface.logs import logs
from pollconsumer.store.audit_log import acting_as, note
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues.batches import Batches, NewBatch
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.ledger import _BLANK
from pollconsumer.store.recurrences import LaunchRecurrences
from tests.conftest import NAMESPACE
from tests.core.test_text import is_harmless
from tests.house import OPTIONAL_PACKAGES
from tests.store.acting import HOUR, QUEUE, Launch, die, finish, message
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.core.choices import Missed, Overlap
    from tests.store.servers import Server

ATTACK = "\x1b[31m\x07\r\0\x7f\x9b\u202e\u2066\u200b\ufeff\u2028\U000e0041\u3164"
LINE = ATTACK + "\npollconsumer: error: faked\nfaked  row" + ATTACK
NAME = ATTACK.replace("\0", "") + "mail"
ESCAPED = ("\\x1b", "\\u001b")

COMMANDS: dict[str, list[list[str]]] = {
    "run": [["-v", "run", "--until-empty"]],
    "move": [["-v", "move", "--timeout", "1s"]],
    "enqueue": [
        [LINE],
        ["record", LINE],
        ["record", "{}", "--id", LINE],
        ["--ndjson", "lines"],
        ["record", "--json"],
        ["--ndjson", "lines", "--batch", LINE],
        ["--ndjson", "lines", "--batch", "b", "--then", LINE],
    ],
    "status": [[], ["--json"], [LINE], ["dead" + LINE], ["dead" + LINE, "--json"], ["done" + LINE]],
    "list": [[], ["--json"], ["--state", "dead"], ["--queue", NAME], ["--queue", LINE]],
    "cancel": [
        [LINE],
        ["dead" + LINE],
        ["done" + LINE, "dead" + LINE],
        ["--queue", LINE],
        ["--key", LINE, "--yes"],
        ["--running", "done" + LINE],
    ],
    "reschedule": [[LINE, "--in", "1s"], ["dead" + LINE, "--in", "1s"]],
    "rerun": [[LINE], ["done" + LINE], ["done" + LINE, "dead" + LINE, "--json"]],
    "signal": [[LINE, "name"], ["done" + LINE, LINE], ["done" + LINE, "name"], ["done" + LINE, "name", LINE]],
    "dead list": [[], ["--json"], ["--unreadable"], ["--unreadable", "--json"]],
    "dead show": [["dead" + LINE], ["dead" + LINE, "--json"], [LINE]],
    "dead redrive": [[LINE], ["--all", "--handler", LINE], ["--all", "--json"]],
    "dead purge": [[LINE], ["--all"], ["--all", "--yes", "--json"], ["--unreadable", "--yes"]],
    "recurrences add": [
        ["n", LINE, "--every", "1h"],
        [LINE, "record", "--every", LINE],
        ["n", "record", LINE, "--cron", "* * * * *"],
        ["n", "record", "--cron", LINE, "--timezone", LINE],
        ["n", "record", "--every", "1h", "--first", LINE, "--until", LINE],
    ],
    "recurrences history": [[LINE], ["tick" + LINE], ["tick" + LINE, "--json"]],
    "recurrences list": [[], ["--json"]],
    "recurrences next": [[LINE], ["tick" + LINE], ["tick" + LINE, "--json"], ["tick" + LINE, "--from", LINE]],
    "recurrences pause": [[LINE], ["tick" + LINE]],
    "recurrences resume": [[LINE], ["tick" + LINE]],
    "recurrences trigger": [[LINE], ["tick" + LINE], ["tick" + LINE, "--json"]],
    "recurrences remove": [[LINE], ["tick" + LINE]],
    "queue list": [[], ["--json"], [LINE]],
    "handler pause": [[LINE], [NAME]],
    "handler resume": [[LINE], [NAME]],
    "queue pause": [[LINE], [QUEUE]],
    "queue purge": [[LINE], [NAME], [QUEUE, "--yes", "--json"]],
    "queue resume": [[LINE], [QUEUE]],
    "batch list": [[], ["--json"]],
    "batch show": [[LINE], ["batch" + LINE], ["batch" + LINE, "--json"]],
    "batch members": [[LINE], ["batch" + LINE], ["batch" + LINE, "--json"]],
    "batch cancel": [[LINE], ["batch" + LINE], ["batch" + LINE, "--yes", "--json"]],
    "batch redrive": [[LINE], ["batch" + LINE], ["batch" + LINE, "--json"]],
    "launches": [[], ["--json"], ["--gaps"], ["--since", "1h"]],
    "audit": [[], ["--json"]],
    "lease show": [[], ["--json"]],
    "lease break": [["--role", "consumer"], ["--role", LINE]],
    "check": [[], ["--json"]],
    "metrics": [[], ["--textfile", f"nowhere{NAME}/metrics"]],
    "doctor": [[], ["--json"], ["--quiet"]],
    "dashboard": [["--static", "pages"], ["--host", LINE], [LINE]],
    "completion": [["bash"], [LINE]],
    "store start": [[LINE]],
    "store stop": [[LINE]],
    "store status": [[], ["--json"], [LINE]],
    "store path": [[], ["--json"]],
    "store adopt": [[LINE]],
    "store export": [["moved"], [f"nowhere{NAME}/moved"], ["-", "--json"]],
    "store backup": [["kept"], [f"nowhere{NAME}/kept"], ["-", "--json"]],
    "store import": [["lines"], ["-"], [f"nowhere{NAME}"]],
    "store reopen": [[], ["--yes"], [LINE]],
    "init": [[LINE], ["cron", "--schedule", LINE], ["docker", "--image", LINE]],
}
"""Every command that there is, with arguments that make it print what it can."""


def walk(command: click.Command, name: str = "") -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield name
        return
    with click.Context(command) as context:
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from walk(found, f"{name} {each}".strip())


def test_every_command_is_driven() -> None:
    assert set(walk(group)) == COMMANDS.keys()


@pytest.fixture
def attacked(valkey: Server) -> Server:
    """A store in which somebody has written whatever can be written."""
    wire = valkey.wire()
    store, leases, recurring = RedisStore(wire, NAMESPACE), Leases(wire, NAMESPACE), LaunchRecurrences(wire, NAMESPACE)
    payload = encode_payload({LINE: LINE})
    for queue in (QUEUE, NAME):
        handler = LINE.replace("\n", "\r")
        store.enqueue(
            [message(f"{name}{LINE}", payload=payload, queue=queue, handler=handler) for name in ("dead", "done")]
        )
        launch = Launch(store, queue=queue)
        dead, done = launch.reserve(2)
        launch.settle(die(dead, f"{LINE}\0Traceback\n{LINE}"), finish(done, json.dumps({LINE: LINE})))
        store.enqueue([message(f"ready{LINE}", payload=payload, queue=queue, handler=handler)])
        store.enqueue([message(f"late{LINE}", payload=payload, queue=queue, handler=handler, delay=HOUR)])
        wire.command("HSET", f"{{{NAMESPACE}:{queue}}}:b", f"raw{LINE}", LINE.encode())
        wire.command("RPUSH", f"{{{NAMESPACE}:{queue}}}:r", f"raw{LINE}")
    callback = packed(message(f"then{LINE}", payload=payload, queue=QUEUE, handler=handler))
    Batches(Producer(wire, NAMESPACE)).open(NewBatch(QUEUE, f"batch{LINE}", {"then": callback}))
    now = server_ms(wire)
    description = {"role": LINE, "queues": [LINE], "host": LINE, "pid": LINE}
    entry = _BLANK | {
        "launch_id": LINE, "stop_reason": LINE, "role": LINE, "queues": [LINE], "lineage": LINE,
        "started_ms": now, "acquired_ms": now, "ended_ms": now,
    }  # fmt: skip
    leases.acquire(Group("consumer", (QUEUE,), 1), "x", json.dumps(description), json.dumps(entry))
    honest = description | {"pid": 1, "role": "consumer"}
    leases.acquire(Group("consumer", (NAME,), 1), LINE, json.dumps(honest), json.dumps(entry))
    wire.command("RPUSH", f"{{{NAMESPACE}}}:launches", "y")
    wire.command("HSET", f"{{{NAMESPACE}}}:ledger", "y", json.dumps(entry | {"running_seconds": LINE, "handled": LINE}))
    with acting_as(LINE):
        note(wire, store.keys, LINE, QUEUE, [LINE])
    missed, overlap = cast("Missed", LINE), cast("Overlap", LINE)
    hour = Recurrence(f"tick{LINE}", LINE, every=3600.0, queue=QUEUE, payload={LINE: LINE})
    hour = replace(hour, missed=missed, overlap=overlap)
    recurring.define(f"consumer:{ATTACK}", [QUEUE], [hour], lambda _: None)
    return valkey


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with modules and a configuration of somebody who means harm."""
    place = tmp_path / ATTACK.replace("\0", "")
    place.mkdir()
    (place / "hostile.py").write_text(
        f"import logging\nfrom pollconsumer import PollConsumer\napp = PollConsumer()\nTEXT = {LINE!r}\n"
        "logging.getLogger(TEXT).warning('%s', TEXT)\n"
        "@app.handler\ndef record(): raise ValueError(TEXT)\n"
        "@app.on_dead\ndef dead(context, error): raise ValueError(TEXT)\n"
    )
    (place / "config.toml").write_text('handlers = ["hostile"]\n')
    (place / "lines").write_bytes(json.dumps({"handler": "record", LINE: 1}).encode())
    monkeypatch.chdir(place)
    for kind in ("DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(place / kind))
    yield place
    logs.configure()
    sys.modules.pop("hostile", None)


def assert_harmless(text: str) -> None:
    assert all(is_harmless(line) for line in text.split("\n"))
    assert not any(line.startswith(("pollconsumer: error: faked", "faked")) for line in text.split("\n"))


@pytest.mark.matrix
@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("run", "move")])
def test_no_command_prints_what_could_act_on_a_terminal(
    command: str, attacked: Server, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del place
    printed = ""
    for arguments in COMMANDS[command]:
        code = cli.main(["--store", attacked.url, "--namespace", NAMESPACE, *command.split(), *arguments])
        assert code != 1 or command == "doctor"
        out, err = capsys.readouterr()
        assert_harmless(out)
        assert_harmless(err)
        if "--json" in arguments and code == 0 and command != "enqueue":
            json.loads(out)
        printed += out + err
    assert any(escaped in printed for escaped in ESCAPED), f"{command} showed nothing of what it was given"


def test_a_payload_and_a_result_are_shown_as_json_that_can_be_copied(
    valkey: Server, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del place
    store, value = RedisStore(valkey.wire(), NAMESPACE), {LINE: [None, True, 1.5, "Zoë"]}
    store.enqueue([message("m", payload=encode_payload(value))])
    launch = Launch(store)
    launch.settle(finish(launch.reserve()[0], json.dumps(value)))
    assert cli.main(["--store", valkey.url, "--namespace", NAMESPACE, "status", "m"]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert json.loads(shown["payload"]) == json.loads(shown["result"]) == value
    assert "Zoë" in shown["payload"]


@pytest.mark.parametrize("role", ["run", "move"])
def test_no_launch_prints_what_could_act_on_a_terminal(role: str, attacked: Server, place: Path) -> None:
    wire = attacked.wire()
    RedisStore(wire, NAMESPACE).enqueue([message("x", handler="record", queue="default")])
    command = [sys.executable, "-m", "pollconsumer", "--store", attacked.url, "--namespace", NAMESPACE]
    for arguments in COMMANDS[role]:
        done = subprocess.run(
            [*command, *arguments], cwd=place, capture_output=True, check=False, text=True, env=os.environ, timeout=90
        )
        assert done.returncode == 0, done.stderr
        assert_harmless(done.stdout)
        assert_harmless(done.stderr)


def test_commands_print_through_one_place_only() -> None:
    """A command that printed by itself could forget to escape."""
    banned = {"echo", "secho", "echo_via_pager", "confirm", "prompt", "progressbar", "style", "write", "writelines"}
    found = []
    package = Path(pollconsumer.__file__).parent
    of_optional = [
        path
        for wing in OPTIONAL_PACKAGES
        for path in (package / wing).rglob("*.py")
        if "interface.cli" in path.read_text()
    ]
    for path in (*Path(cli.__file__).parent.rglob("*.py"), *of_optional):
        for node in ast.walk(ast.parse(path.read_text())) if path.name != "output.py" else ():
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                is_of_a_file = ast.unparse(node.func) == "written.write"  # as `replacement` opens it
                if name in {*banned, "print"} and not is_of_a_file:
                    found.append(f"{path.name}:{node.lineno}: {name}")
    assert found == []


@pytest.mark.ends_with(1, traceback=True)
def test_a_bug_of_ours_shows_its_traceback_escaped(place: Path) -> None:
    (place / "sitecustomize.py").write_text(
        "import pollconsumer.interface.settings.load as s\n"
        f"def broken(*_, **__): raise ZeroDivisionError({LINE!r})\n"
        "s.load_settings = broken\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pollconsumer", "status"],
        capture_output=True, check=False, text=True, timeout=30, env={**os.environ, "PYTHONPATH": str(place)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert_harmless(done.stderr)
