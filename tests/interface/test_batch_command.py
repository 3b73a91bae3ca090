"""``pollconsumer batch`` and ``enqueue --ndjson --batch``: batches from the shell."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import click
import pytest

from pollconsumer.core.errors import StoreUnreachable
from pollconsumer.interface import cli
from pollconsumer.interface.api.batches import PAGE, OpenBatch
from pollconsumer.interface.cli.messages import batch
from pollconsumer.interface.logs import logs
from pollconsumer.store.reading.batch_reader import BatchReader, BatchStatus
from tests.conftest import NAMESPACE
from tests.terminal import Screen

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.site import Site
    from tests.store.servers import Server

GOOD = '{"handler": "record", "payload": {"name": "%s"}}'
FATAL = '{"handler": "fatal"}'
TOLD = 'record={"name": "%s"}'


def make(site: Site, *lines: str, **callbacks: str) -> CompletedProcess[str]:
    """Enqueue the lines as the batch ``import``."""
    (site.directory / "lines").write_text("".join(f"{line}\n" for line in lines))
    options = [word for name, callback in callbacks.items() for word in (f"--{name}", callback)]
    return site.command("enqueue", "--ndjson", "lines", "--batch", "import", *options)


def counts(site: Site) -> dict[str, Any]:
    shown = site.json("batch", "show", "import")
    return {name: value for name, value in shown.items() if value and isinstance(value, int)}


def test_lines_are_members_and_the_callback_comes_after_the_last(site: Site) -> None:
    done = make(site, GOOD % "a", "", GOOD % "b", then=TOLD % "then", failed=TOLD % "failed", ended="fatal")
    assert (done.returncode, done.stdout, done.stderr) == (0, "import\n", "")
    assert site.json("batch", "show", "import")["state"] == "closed"
    site.drain()
    assert site.notes() == ["a", "b", "then"]
    shown = site.json("batch", "show", "import")
    assert [*shown] == [
        *("id", "state", "total", "outstanding", "completed", "dead", "cancelled", "expired"),
        *("created_at", "ended_at", "expires_at", "callbacks"),
    ]
    assert (shown["id"], shown["state"], counts(site)) == ("import", "ended", {"total": 2, "completed": 2})
    assert shown["callbacks"] == [
        {"name": name, "handler": handler, "message_id": f"import:{name}", "queue": "default", "state": state}
        for name, handler, state in [
            ("then", "record", "completed"),
            ("failed", "record", None),
            ("ended", "fatal", "dead"),
        ]
    ]
    assert site.state("import.1") == "completed"


def test_a_callback_of_an_unfinished_batch_waits(site: Site) -> None:
    make(site, GOOD % "a", then=TOLD % "then")
    assert site.json("batch", "show", "import")["callbacks"][0]["state"] == "waiting"
    assert "record, import:then: waiting" in site.command("batch", "show", "import").stdout


def test_a_batch_is_watched_until_it_has_ended(site: Site) -> None:
    make(site, GOOD % "a", '{"handler": "hold", "payload": {"name": "b"}}')
    command = [sys.executable, "-m", "pollconsumer", "batch", "show", "import", "--watch", "--json"]
    place: dict[str, Any] = {"cwd": site.directory, "env": site.environment | {"TERM": "xterm"}}
    with Screen() as screen:
        watching = subprocess.Popen(command, **place, stdout=subprocess.PIPE, stderr=screen.side)
        screen.hand_over()
        launch = site.start("run", "--until-empty")
        shown = screen.read_to("50%")
        assert (watching.poll(), "100%" in shown) == (None, False)
        site.open_gate()
        assert "100%" in screen.read_rest()
    assert json.loads(watching.communicate(timeout=90)[0])["state"] == "ended"
    assert launch.wait() == 0


def test_a_batch_that_is_enqueued_again_gets_no_second_members(site: Site) -> None:
    make(site, GOOD % "a", GOOD % "b")
    again = site.command("enqueue", "--ndjson", "lines", "--batch", "import", "--json")
    assert json.loads(again.stdout) == {"id": "import", "duplicate": True}
    site.drain()
    assert (site.notes(), counts(site)) == (["a", "b"], {"total": 2, "completed": 2})


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{bad", "message is not JSON: {bad; "),
        ('{"handler": "record", "payload": {"name": "c"}, "id": "c"}', "with an id or a key of its own"),
        ('{"handler": "record", "payload": {"name": "c"}, "key": "c"}', "with an id or a key of its own"),
    ],
)
def test_after_a_refused_line_the_batch_is_open_and_the_whole_command_goes_on(site: Site, bad: str, said: str) -> None:
    many = [GOOD % number for number in range(400)]
    refused = make(site, *many, bad, GOOD % "d", then=TOLD % "then")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (65, "", 1)
    assert refused.stderr.startswith("pollconsumer: error: line 401: ")
    assert said in refused.stderr
    said = "; batch import is open: correct the line, and repeat the command with all lines within an hour"
    assert said in refused.stderr
    assert site.json("batch", "show", "import")["state"] == "open"
    rows = [line.split(maxsplit=1) for line in site.command("batch", "show", "import").stdout.splitlines()]
    unknown = "not known before it is closed"
    assert rows[1:4] == [["state", "open"], ["total", unknown], ["outstanding", unknown]]
    assert site.command("batch", "list").stdout.splitlines()[1].split()[:4] == ["import", "open", "-", "-"]
    site.drain()
    assert len(site.notes()) == PAGE
    assert make(site, *many, GOOD % "c", GOOD % "d", then=TOLD % "then").returncode == 0
    site.drain()
    assert sorted(site.notes()) == sorted([*map(str, range(400)), "c", "d", "then"])
    assert counts(site) == {"total": 402, "completed": 402}


def test_a_line_whose_message_would_have_an_id_that_is_taken_is_refused(site: Site) -> None:
    site.command("enqueue", "record", '{"name": "other"}', "--id", "import.0")
    refused = make(site, GOOD % "a")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "batch: import; there was a message import.0 before, which is no member of it: give the" in refused.stderr
    assert site.json("batch", "show", "import")["state"] == "open"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["record", "--batch", "b"], 2, "--batch: b; its members are lines: give --ndjson FILE, too"),
        (["record", "--then", "record"], 2, "--then: record; it is the callback of a batch: give --batch ID, too"),
        (["--ndjson", "lines", "--batch", "b", "--skip", "1"], 2, "--skip: 1; leave it out with --batch"),
        (["--ndjson", "lines", "--batch", "b", "--then", "record={"], 65, "--then: payload is not JSON: {; "),
        (["--ndjson", "lines", "--batch", "b", "--then", "recrod"], 65, "--then: "),
        (["--ndjson", "lines", "--batch", "b", "--then", "x"], 65, "now; give the configuration that has it, with"),
        (["--ndjson", "lines", "--batch", "b" * 101], 65, "; 1 to 100 letters, digits or any of _ . : @ + -"),
        (["--ndjson", "nowhere", "--batch", "b"], 65, "--ndjson: nowhere; cannot be read"),
    ],
)
def test_options_of_a_batch_that_say_nothing_are_refused(
    site: Site, arguments: list[str], code: int, said: str
) -> None:
    (site.directory / "lines").write_text(GOOD % "a")
    refused = site.command("enqueue", *arguments)
    assert (refused.returncode, refused.stderr.count("\n")) == (code, 1)
    assert said in refused.stderr
    assert site.json("batch", "list") == []


def test_batches_are_listed_with_their_counts(site: Site) -> None:
    assert site.json("batch", "list") == []
    make(site, GOOD % "a", FATAL)
    site.drain()
    (listed,) = site.json("batch", "list")
    assert (listed["id"], listed["state"], listed["completed"], listed["dead"]) == ("import", "ended", 1, 1)
    header, row = site.command("batch", "list").stdout.splitlines()
    assert header.split()[:4] == ["id", "state", "total", "outstanding"]
    assert row.split()[:6] == ["import", "ended", "2", "0", "1", "1"]
    site.command("enqueue", "--ndjson", "lines", "--batch", "second")
    assert [each["id"] for each in site.json("batch", "list", "--state", "closed", "--limit", "1")] == ["second"]
    assert site.json("batch", "list", "--state", "open") == []


def test_members_that_have_not_ended_are_cancelled_if_a_person_says_yes(site: Site) -> None:
    make(site, GOOD % "a", GOOD % "b", ended=TOLD % "ended")
    assert site.command("batch", "cancel", "import").stdout == "2 messages would be cancelled; give --yes\n"
    assert site.json("batch", "cancel", "import") == {"would_be_cancelled": 2}
    assert site.json("batch", "cancel", "import", "--yes") == {"cancelled": 2, "asked_to_stop": 0}
    assert site.command("batch", "cancel", "import", "--yes").stdout == "0 cancelled\n"
    site.drain()
    assert (site.notes(), counts(site)) == (["ended"], {"total": 2, "cancelled": 2})


def test_a_member_in_hand_is_asked_to_stop(site: Site) -> None:
    make(site, '{"handler": "hold", "payload": {"name": "a"}}', GOOD % "b")
    launch = site.start("run", "--until-empty", "--concurrency", "1")
    site.await_note("begin a")
    assert site.command("batch", "cancel", "import", "--yes").stdout == "1 cancelled, 1 running and asked to stop\n"
    assert launch.wait() == 0
    assert counts(site) == {"total": 2, "cancelled": 2}


def test_the_time_left_is_reckoned_from_the_first_member_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    ends = [0] * 81 + [100, 200, 300]  # the launch comes after 40 s, and needs half a second for each hundred
    batches = [
        BatchStatus("a", "default", "closed", 1000, each, 0, 0, 0, datetime.fromtimestamp(0, UTC), None, None, ())
        for each in ends
    ]
    shown = list[str]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        shown.append(bar.format_progress_line())

    clock = SimpleNamespace(time=lambda: now, sleep=sleep)
    monkeypatch.setattr(batch, "time", clock)
    monkeypatch.setattr("click._termui_impl.time", clock)
    bar = click.progressbar(length=1, file=io.StringIO())
    monkeypatch.setattr(batch, "progress_bar", lambda *_, **__: bar)
    following = [*batches[1:], batches[0]._replace(state="ended")]
    reader = cast("BatchReader", SimpleNamespace(status=lambda *_: following.pop(0)))
    assert batch.until_ended(reader, batches[0]).state == "ended"
    assert not any(":" in line for line in shown[:82])
    assert [line.rpartition("  ")[2] for line in shown[82:]] == ["00:00:04", "00:00:03"]


def test_dead_members_are_redriven_and_those_of_others_are_not_and_are_then_cancelled_as_the_others(site: Site) -> None:
    make(site, GOOD % "a", FATAL, then=TOLD % "then")
    other = site.enqueue("fatal")
    site.drain()
    failed = site.json("batch", "members", "import", "--state", "dead")
    assert [(each["id"], each["handler"]) for each in failed] == [("import.1", "fatal")]
    assert [each["id"] for each in site.json("batch", "members", "import")] == ["import.0", "import.1"]
    assert site.json("batch", "members", "import", "--limit", "1")[0]["payload"] == {"name": "a"}
    assert site.json("batch", "redrive", "import") == {"redriven": 1, "left": []}
    assert (site.state("import.1"), site.state(other)) == ("ready", "dead")
    shown = site.json("batch", "show", "import")
    assert [shown[each] for each in ("state", "dead", "outstanding", "ended_at")] == ["closed", 0, 1, None]
    assert {each["name"]: each["state"] for each in shown["callbacks"]}["then"] == "waiting"
    listed = site.json("batch", "list")
    assert listed == [{name: each for name, each in shown.items() if name != "callbacks"}]
    assert site.json("batch", "list", "--state", "closed") == listed
    assert site.json("batch", "list", "--state", "ended") == []
    assert site.command("batch", "redrive", "import").stdout == "0 redriven\n"
    assert site.json("batch", "cancel", "import") == {"would_be_cancelled": 1}
    assert site.json("batch", "cancel", "import", "--yes") == {"cancelled": 1, "asked_to_stop": 0}


@pytest.mark.parametrize("command", ["show", "cancel", "redrive"])
def test_a_batch_that_is_not_there_is_said_in_a_line(site: Site, command: str) -> None:
    missing = site.command("batch", command, "nothing")
    assert (missing.returncode, missing.stderr.count("\n")) == (66, 1)
    assert missing.stderr.startswith("pollconsumer: error: no such batch: nothing; ")


def test_lines_come_from_a_pipe_too(site: Site) -> None:
    piped = site.start_program(
        ["sh", "-c", f"printf '%s\\n' '{GOOD % 'a'}' | {sys.executable} -m pollconsumer enqueue --ndjson - --batch p"]
    )
    assert piped.communicate(timeout=90)[0] == "p\n"
    assert site.json("batch", "show", "p")["total"] == 1


def test_where_the_store_is_lost_on_the_way_the_error_says_how_to_go_on(
    valkey: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose(*_: object) -> str:
        raise StoreUnreachable("store", "lost", "try later")

    monkeypatch.chdir(tmp_path)
    for kind in ("DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    monkeypatch.setattr(OpenBatch, "add", lose)
    (tmp_path / "lines").write_text(GOOD % "a")
    place = ["--store", valkey.url, "--namespace", NAMESPACE]
    assert cli.main([*place, "enqueue", "--ndjson", "lines", "--batch", "import"]) == 69
    logs.configure()
    assert capsys.readouterr().err == (
        "pollconsumer: error: store: lost; try later; batch import is not closed: repeat the "
        "command with all lines within an hour: lines that are members already are not added twice\n"
    )


def test_a_batch_goes_to_the_project_of_the_current_directory_wherever_the_program_is(
    valkey: Server, tmp_path: Path
) -> None:
    """Members were sent to the project that has the program, as in its ``.venv``."""
    programs, project = tmp_path / "programs", tmp_path / "project"
    for place in (programs, project):
        place.mkdir()
        (place / "config.toml").write_text(f'store = "{valkey.url}"\nnamespace = "of-{place.name}"\n')
    (programs / "command.py").write_text(
        "import sys\nfrom pollconsumer.interface.cli import main\nmain(sys.argv[1:])\n"
    )
    (project / "lines").write_text('{"handler": "mail", "queue": "default"}\n')

    def run(*arguments: str) -> str:
        command = [sys.executable, str(programs / "command.py"), *arguments]
        return subprocess.run(command, cwd=project, check=True, capture_output=True, text=True).stdout

    assert run("enqueue", "--ndjson", "lines", "--batch", "import") == "import\n"
    assert [each["id"] for each in json.loads(run("batch", "list", "--json"))] == ["import"]
