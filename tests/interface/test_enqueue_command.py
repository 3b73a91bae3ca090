"""``pollconsumer enqueue --ndjson``: many messages, what is said of them, and how to go on after a bad line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.terminal import Screen

if TYPE_CHECKING:
    from tests.site import Site

GOOD = '{"handler": "record", "payload": {"name": "%s"}}'


def write(site: Site, *lines: str) -> None:
    (site.directory / "lines").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("bad", ["{bad", '["a"]', '{"handler": "record", "priority": "high"}'])
def test_after_a_bad_line_the_rest_goes_on_and_nothing_is_enqueued_twice(site: Site, bad: str) -> None:
    write(site, GOOD % "a", "", bad, GOOD % "d")
    refused = site.command("enqueue", "--ndjson", "lines")
    assert (refused.returncode, refused.stderr.count("\n"), refused.stdout.count("\n")) == (65, 1, 1)
    assert refused.stderr.startswith("pollconsumer: error: line 3: ")
    assert refused.stderr.endswith("; 1 accepted before it: correct it and go on with --skip 2\n")
    write(site, GOOD % "a", "", GOOD % "c", GOOD % "d")
    assert site.command("enqueue", "--ndjson", "lines", "--skip", "2").returncode == 0
    site.drain()
    assert site.notes() == ["a", "c", "d"]


def test_a_line_that_is_no_text_does_not_take_those_before_it_along(site: Site) -> None:
    (site.directory / "lines").write_bytes((GOOD % "a").encode() + b'\n{"handler": "caf\xe9"}\n')
    refused = site.command("enqueue", "--ndjson", "lines")
    assert refused.returncode == 65
    assert "line 2: not UTF-8" in refused.stderr
    assert "1 accepted before it" in refused.stderr
    assert site.json("status")["queues"][0]["ready"] == 1


def test_long_lines_are_enqueued_while_more_are_read(site: Site) -> None:
    command = [sys.executable, "-m", "pollconsumer", "enqueue", "--ndjson", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=site.directory, env=site.environment, stdin=pipe, stdout=pipe) as enqueuing:
        assert enqueuing.stdin is not None
        assert enqueuing.stdout is not None
        for _ in range(5):
            enqueuing.stdin.write((GOOD % ("x" * 900_000)).encode() + b"\n")
        enqueuing.stdin.flush()
        assert enqueuing.stdout.readline().strip()
    assert site.json("status")["queues"][0]["ready"] == 5


def test_lines_are_passed_over_in_a_file_alone(site: Site) -> None:
    refused = site.command("enqueue", "record", "{}", "--skip", "1")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def test_a_terminal_is_told_how_many_and_a_pipe_which(site: Site) -> None:
    again = '{"handler": "record", "payload": {"name": "a"}, "id": "a"}'
    write(site, *[GOOD % n for n in range(20)], again, again)
    command = [sys.executable, "-m", "pollconsumer", "enqueue", "--ndjson", "lines"]
    with Screen() as screen:
        subprocess.run(command, cwd=site.directory, env=site.environment, stdout=screen.side, check=True, timeout=60)
        assert screen.read_rest() == "22 enqueued, 1 of them duplicates\n"
    assert len(site.command("enqueue", "--ndjson", "lines").stdout.splitlines()) == 22
    told = site.command("enqueue", "--ndjson", "lines", "--json").stdout.splitlines()
    assert json.loads(told[-1]) == {"id": "a", "duplicate": True}


def progress(site: Site, source: str, lines: bytes | None = None) -> str:
    """What a terminal shows on standard error while lines are enqueued whose ids go elsewhere."""
    command = [sys.executable, "-m", "pollconsumer", "enqueue", "--ndjson", source]
    place: dict[str, Any] = {"cwd": site.directory, "env": site.environment, "stdout": subprocess.PIPE}
    with Screen() as screen:
        done = subprocess.run(command, **place, input=lines, stderr=screen.side, check=True, timeout=60)
        assert done.stdout.count(b"\n") == 2500
        return screen.read_rest()


def test_a_terminal_that_does_not_show_the_ids_shows_how_far_it_has_come(site: Site) -> None:
    write(site, *[GOOD % n for n in range(2500)])
    shown = progress(site, "lines")
    assert "100%" in shown
    assert shown.count("\r") > 1
    assert "2500" in progress(site, "-", (site.directory / "lines").read_bytes())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["enqueue", "record", "{}", "--in", "99999999d"], "--in: 99999999d; must be at most 365000d"),
        (["reschedule", "a", "--in", "99999999d"], "--in: 99999999d; must be at most 365000d"),
        (
            ["enqueue", "record", "{}", "--key", "k", "--key-lifetime", "99999999d"],
            "--key-lifetime: 99999999d; must be at most 365000d",
        ),
        (["run", "--timeout", "99999h"], "--timeout: 99999h; must be at most 365d"),
    ],
)
def test_a_span_that_is_too_long_is_refused_as_it_was_written(site: Site, arguments: list[str], said: str) -> None:
    refused = site.command(*arguments)
    assert (refused.returncode, refused.stderr) == (2, f"pollconsumer: error: {said}\n")


def test_a_span_that_is_too_long_for_a_line_has_the_name_that_the_line_gives_it(site: Site) -> None:
    write(site, '{"handler": "record", "in": "99999999d"}')
    assert "error: line 1: in: 99999999d; at most 1000 years; 0 " in site.command("enqueue", "--ndjson", "lines").stderr


def test_an_instant_of_a_line_before_the_first_year_is_due_now(site: Site) -> None:
    write(site, '{"handler": "record", "payload": {"name": "old"}, "at": "0001-01-01T00:00:00+14:00"}')
    (message,) = site.command("enqueue", "--ndjson", "lines").stdout.split()
    assert site.state(message) == "ready"


def test_an_id_that_two_queues_have_is_acted_on_in_the_one_that_is_named(site: Site) -> None:
    for queue in ("a", "b"):
        site.enqueue("fatal", "--id", "same", "--queue", queue)
    for command in (["status"], ["cancel"], ["reschedule", "--in", "1h"], ["dead", "show"], ["dead", "redrive"]):
        refused = site.command(*command, "same")
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert "queues a and b" in refused.stderr
    assert site.command("cancel", "same", "--queue", "b").returncode == 0
    assert site.command("reschedule", "same", "--queue", "a", "--in", "1h").returncode == 0
    states = [site.json("status", "same", "--queue", queue)["state"] for queue in ("a", "b")]
    assert states == ["scheduled", "cancelled"]
    missing = site.command("status", "same", "--queue", "c")
    assert (missing.returncode, missing.stderr.count("\n")) == (66, 1)
    assert site.command("reschedule", "same", "--queue", "a", "--in", "0s").returncode == 0
    site.drain("--queue", "a")
    assert site.json("dead", "show", "same", "--queue", "a")["queue"] == "a"
    assert site.command("dead", "purge", "same", "--queue", "a", "--yes").returncode == 0
    assert site.json("status", "same")["queue"] == "b"


@pytest.mark.parametrize(("option", "how"), [(("--key", "k"), "queued with key k"), (("--id", "order:7"), "enqueued")])
def test_a_message_that_is_not_enqueued_again_is_named_and_exits_with_0(
    site: Site, option: tuple[str, str], how: str
) -> None:
    payload = '{"name": "a"}'
    first = site.command("enqueue", "record", payload, *option)
    assert (first.returncode, first.stderr) == (0, "")
    again = site.command("enqueue", "record", payload, *option)
    said = f"pollconsumer: already {how}: {first.stdout.strip()}; not enqueued again\n"
    assert (again.returncode, again.stdout, again.stderr) == (0, first.stdout, said)
    as_json = site.command("enqueue", "record", payload, *option, "--json")
    assert (json.loads(as_json.stdout)["duplicate"], as_json.stderr) == (True, "")
    if option[0] == "--key":
        assert site.command("enqueue", "record", '{"name": "b"}', *option, "--replace").stderr == ""
    site.drain()
    assert len(site.notes()) == 1


def test_who_enqueues_for_launches_without_handlers_is_warned_but_not_where_the_queue_is_named(site: Site) -> None:
    (site.directory / "config.toml").write_text("")
    write(site, GOOD % "a", GOOD % "b")
    said = "pollconsumer: warning: no handlers: messages are kept, not handled; name the modules as handlers"
    for arguments, lines in ((("record",), 1), (("--ndjson", "lines"), 2)):
        done = site.command("enqueue", *arguments)
        assert (done.returncode, done.stdout.count("\n")) == (0, lines)
        assert done.stderr == f"{said} in the configuration\n"
    assert site.command("enqueue", "record", "--queue", "default").stderr == ""
