"""What a person can do from the shell to a message, to dead letters, to a queue."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.lifecycle import State, Timestamps
from pollconsumer.interface.cli.messages.actions import MANY
from tests.site import wait_until
from tests.terminal import Screen

if TYPE_CHECKING:
    from tests.site import Site


@pytest.mark.parametrize("options", [[], ["--in", "1h"], ["--priority", "3"]])
def test_a_cancelled_message_is_not_handled(site: Site, options: list[str]) -> None:
    message = site.enqueue("record", *options, name="a")
    other = site.enqueue("record", name="b")
    assert site.command("cancel", message).returncode == 0
    assert site.command("cancel", message).returncode == 0
    assert site.state(message) == "cancelled"
    counts = site.json("status")["queues"][0]
    assert (counts["ready"], counts["scheduled"], counts["cancelled"]) == (1, 0, 1)
    assert [entry["id"] for entry in site.json("list", "--state", "ready")] == [other]
    assert site.drain().returncode == 0
    assert site.notes() == ["b"]
    assert site.json("status")["queues"][0]["ready"] == 0


def test_status_has_every_timestamp_and_list_shows_when_a_message_ended(site: Site) -> None:
    messages = {
        "completed": site.enqueue("record", name="a"),
        "dead": site.enqueue("fatal"),
        "cancelled": site.enqueue("record", "--in", "1h", name="b"),
        "expired": site.enqueue("record", "--expires", "1ms", name="c"),
    }
    assert messages.keys() == {state for state in State if state.has_ended}
    assert site.command("cancel", messages["cancelled"]).returncode == 0
    site.drain()
    for state, message in messages.items():
        times = site.json("status", message)["timestamps"]
        assert [*times] == [*Timestamps._fields]
        assert times[f"{state}_at"] is not None
        assert f"{state}_at" in site.command("status", message).stdout
        (line,) = (line for line in site.command("list", "--state", state).stdout.splitlines() if message in line)
        assert times[f"{state}_at"] in line


def test_a_message_is_watched_until_it_has_ended(site: Site) -> None:
    message = site.enqueue("hold", name="a")
    watching = site.start_program([sys.executable, "-m", "pollconsumer", "status", message, "--watch", "--json"])
    assert watching.stdout is not None
    states = (json.loads(line)["state"] for line in watching.stdout)
    assert next(states) == "ready"
    launch = site.start("run", "--until-empty")
    assert next(states) == "reserved"
    (site.directory / "gate").touch()
    assert [*states][-1] == "completed"
    assert watching.wait() == 0
    assert launch.wait() == 0


def test_the_overview_is_watched_on_a_terminal_until_it_is_interrupted(site: Site) -> None:
    site.enqueue("record", name="a")
    command = [sys.executable, "-m", "pollconsumer", "status", "--watch"]
    place: dict[str, Any] = {"cwd": site.directory, "env": site.environment | {"TERM": "xterm"}}
    with Screen() as screen:
        watching = subprocess.Popen(command, **place, stdout=screen.side)
        screen.hand_over()
        shown = screen.read_to("oldest ready") + screen.read_to("oldest ready")
        first, clears, _ = shown.partition("\x1b[2J")
        assert clears
        assert "default" in first
        watching.send_signal(signal.SIGINT)
        assert watching.wait(90) == 130


def test_many_messages_are_acted_on_with_a_progress_bar_on_a_terminal_alone(site: Site) -> None:
    lines = ['{"handler": "record", "payload": {"name": "a"}}'] * (MANY + 1)
    (site.directory / "lines").write_text("\n".join(lines))
    for count in (MANY + 1, MANY):
        assert site.command("enqueue", "--ndjson", "lines", "--skip", str(MANY + 1 - count)).returncode == 0
        command = [sys.executable, "-m", "pollconsumer", "queue", "purge", "default", "--yes"]
        place: dict[str, Any] = {"cwd": site.directory, "env": site.environment}
        with Screen() as screen:
            done = subprocess.run(command, **place, stdout=subprocess.PIPE, stderr=screen.side, timeout=60)
            shown = screen.read_rest()
        assert (done.returncode, done.stdout) == (0, f"{count} purged\n".encode())
        assert ("100%" in shown) == (count > MANY)
        assert site.json("status")["queues"][0]["ready"] == 0


def test_what_has_ended_is_watched_once(site: Site) -> None:
    message = site.enqueue("fatal")
    site.drain()
    shown = site.command("status", message, "--watch")
    assert (shown.returncode, shown.stdout.count(message)) == (0, 1)
    assert site.command("status", "--watch").returncode == 2


def test_the_table_of_queues_has_a_column_for_every_state(site: Site) -> None:
    site.command("cancel", site.enqueue("record", name="a"))
    headers, values = (line.split() for line in site.command("status").stdout.splitlines()[:2])
    states = [header for header in headers if header != "started"]  # of those that are reserved
    assert states[1 : 1 + len(State)] == [*State]
    assert values[headers.index("cancelled")] == "1"


def test_what_is_reserved_or_ended_can_be_neither_cancelled_nor_rescheduled(site: Site) -> None:
    message = site.enqueue("hold", name="a")
    launch = site.start("run", "--max-messages", "1")
    site.await_note("begin a")
    for arguments in (["cancel", message], ["reschedule", message, "--in", "1h"]):
        refused = site.command(*arguments)
        assert (refused.returncode, refused.stderr.count("\n")) == (65, 1)
        assert "reserved" in refused.stderr
    site.open_gate()
    assert launch.wait(90) == 0
    refused = site.command("cancel", message)
    assert refused.returncode == 65
    assert "completed" in refused.stderr
    assert site.command("cancel", "nobody").returncode == 66


def test_a_rescheduled_message_keeps_its_id_and_waits(site: Site) -> None:
    message = site.enqueue("record", name="a")
    assert site.command("reschedule", message, "--at", "2999-01-01T00:00:00Z").returncode == 0
    status = site.json("status", message)
    assert (status["state"], status["timestamps"]["due_at"]) == ("scheduled", "2999-01-01T00:00:00.000Z")
    site.drain()
    assert site.notes() == []
    assert site.command("reschedule", message, "--at", "2000-01-01T00:00:00Z").returncode == 0
    assert site.state(message) == "ready"
    site.drain()
    assert site.notes() == ["a"]


def test_reschedule_needs_one_due_time(site: Site) -> None:
    message = site.enqueue("record", name="a")
    assert site.command("reschedule", message).returncode == 2
    assert site.command("reschedule", message, "--in", "1s", "--at", "2999-01-01T00:00:00Z").returncode == 2


def test_a_redriven_dead_letter_keeps_its_id_and_begins_a_generation(site: Site) -> None:
    message = site.enqueue("fail", name="x", times=3)
    for _ in range(3):
        site.drain()
        site.command("reschedule", message, "--in", "0")
    assert site.state(message) == "dead"
    assert [letter["id"] for letter in site.json("dead", "list", "--handler", "fail")] == [message]
    assert site.json("dead", "list", "--handler", "record") == []
    assert site.json("dead", "redrive", message) == {"redriven": 1, "left": []}
    status = site.json("status", message)
    assert (status["state"], status["attempts"], status["generation"]) == ("ready", 0, 1)
    site.drain()
    assert site.state(message) == "completed"


def test_purging_tells_what_it_would_do_and_does_it_when_told(site: Site) -> None:
    messages = [site.enqueue("fatal") for _ in range(3)]
    site.drain()
    refused = site.command("dead", "purge", "--all")
    assert refused.returncode == 2
    assert "3 dead letters" in refused.stderr
    assert len(site.json("dead", "list")) == 3
    assert site.json("dead", "purge", messages[0], "--yes") == {"purged": 1, "left": []}
    assert site.command("status", messages[0]).returncode == 66
    assert site.command("dead", "purge", "--queue", "default", "--yes").returncode == 0
    assert site.json("dead", "list") == []


def test_all_messages_that_have_something_in_common_are_cancelled_when_told(site: Site) -> None:
    ours = [site.enqueue("record", name="a"), site.enqueue("record", "--in", "1h", name="b")]
    other = site.enqueue("fatal", "--key", "k")
    would = site.command("cancel", "--handler", "record")
    assert (would.returncode, would.stdout) == (0, "2 messages would be cancelled; give --yes\n")
    assert site.json("cancel", "--handler", "record") == {"would_be_cancelled": 2}
    assert [site.state(message) for message in ours] == ["ready", "scheduled"]
    done = site.command("cancel", "--handler", "record", "--yes")
    assert (done.returncode, done.stdout) == (0, "2 cancelled\n")
    assert [site.state(message) for message in ours] == ["cancelled"] * 2
    assert site.state(other) == "ready"
    others = [site.enqueue("record", "--key", "k", name="c"), site.enqueue("hold", "--key", "k", name="d")]
    assert site.enqueue("record", "--key", "k", name="e") == others[0]
    assert site.json("cancel", "--key", "k", "--handler", "hold", "--yes") == {"cancelled": 1, "left": []}
    assert site.json("cancel", "--key", "k", "--yes") == {"cancelled": 2, "left": []}
    assert [site.state(message) for message in (other, *others)] == ["cancelled"] * 3
    shared = [site.enqueue(each, "--key", "k", "--key-scope", "queue", name="f") for each in ("record", "hold")]
    assert shared[0] == shared[1]


def test_each_id_is_cancelled_that_can_be(site: Site) -> None:
    message, dead = site.enqueue("record", name="a"), site.enqueue("fatal")
    site.drain("--max-messages", "2")
    first, second = site.enqueue("record", name="b"), site.enqueue("record", name="c")
    refused = site.command("cancel", first, "unknown", dead, second)
    assert refused.returncode == 65
    assert [line.split(";")[0] for line in refused.stderr.splitlines()] == [
        "pollconsumer: error: no such message: unknown",
        f"pollconsumer: error: cannot cancel: {dead}",
    ]
    assert [site.state(each) for each in (message, first, second)] == ["completed", "cancelled", "cancelled"]


@pytest.mark.parametrize(
    "arguments", [[], ["--yes"], ["x", "--handler", "record"], ["x", "--key", "k"], ["x", "--header", "a=b"]]
)
def test_messages_are_named_by_id_or_by_what_they_have_in_common(site: Site, arguments: list[str]) -> None:
    assert site.command("cancel", *arguments).returncode == 2


def test_messages_are_listed_by_handler_and_recurrence(site: Site) -> None:
    message = site.enqueue("record", name="a")
    occurrence = site.enqueue("fatal", "--id", "nightly@2026-11-22T02:30:00Z")
    assert [each["id"] for each in site.json("list", "--handler", "record")] == [message]
    assert [each["id"] for each in site.json("list", "--recurrence", "nightly")] == [occurrence]
    assert site.json("list", "--handler", "fatal", "--state", "dead") == []


def test_messages_are_listed_cancelled_redriven_and_purged_by_header(site: Site) -> None:
    ours = [site.enqueue("fatal", "--header", f"customer={customer}") for customer in ("7", "8")]
    site.drain()
    waiting = site.enqueue("record", "--header", "customer=7", "--header", "plan=free", name="a")
    both = ("--header", "customer=7", "--header", "plan=free")
    assert [each["id"] for each in site.json("list", "--header", "customer=7")] == [waiting, ours[0]]
    assert [each["id"] for each in site.json("list", *both)] == [waiting]
    assert [each["id"] for each in site.json("dead", "list", "--header", "customer=8")] == [ours[1]]
    assert site.json("cancel", "--header", "customer=7", "--yes") == {"cancelled": 1, "left": []}
    assert site.json("dead", "redrive", "--header", "customer=8") == {"redriven": 1, "left": []}
    assert site.json("dead", "purge", "--header", "customer=7", "--yes") == {"purged": 1, "left": []}
    assert site.command("list", "--header", "customer").returncode == 2


def test_queues_are_listed_as_status_shows_them(site: Site) -> None:
    assert site.json("queue", "list") == []
    site.enqueue("record", name="a")
    site.enqueue("record", "--queue", "second", name="b")
    names = ["default", "second"]
    listed = site.json("queue", "list")
    assert sorted(each["name"] for each in listed) == names
    assert listed[0].keys() == site.json("status")["queues"][0].keys()
    assert sorted(line.split()[0] for line in site.command("queue", "list").stdout.splitlines()[1:]) == names


def test_purging_a_queue_leaves_nothing_to_do_in_it_and_no_dead_letter(site: Site) -> None:
    dead = site.enqueue("fatal")
    site.drain()
    messages = [site.enqueue("record", name="a"), site.enqueue("record", "--in", "1h", name="b")]
    other = site.enqueue("record", "--queue", "second", name="c")
    would = site.command("queue", "purge", "default")
    assert (would.returncode, would.stdout) == (0, "3 messages would be purged; give --yes\n")
    assert site.json("queue", "purge", "default", "--yes") == {"purged": 3, "left": []}
    assert [site.state(message) for message in messages] == ["cancelled"] * 2
    assert site.command("status", dead).returncode == 66
    assert site.state(other) == "ready"
    assert site.command("queue", "purge", "nowhere").returncode == 66


@pytest.mark.parametrize("arguments", [[], ["x", "--all"], ["x", "--header", "a=b"]])
def test_dead_letters_are_named_by_id_or_by_a_choice(site: Site, arguments: list[str]) -> None:
    assert site.command("dead", "redrive", *arguments).returncode == 2


def test_what_is_no_dead_letter_cannot_be_redriven(site: Site) -> None:
    message = site.enqueue("record", name="a")
    assert site.command("dead", "redrive", message).returncode == 66
    assert site.command("dead", "show", message).returncode == 66
    assert site.state(message) == "ready"


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(site: Site) -> None:
    message = site.enqueue("record", name="a")
    assert site.command("queue", "pause", "default").returncode == 0
    assert site.command("queue", "resume", "nowhere").returncode == 66
    assert site.drain().returncode == 0
    assert site.json("status")["queues"][0]["paused"] is True
    assert site.state(message) == "ready"
    launch = site.start("run", "--idle-time", "50s", "--max-messages", "1")
    site.await_holder(launch.pid)
    assert site.command("queue", "resume", "default").returncode == 0
    assert launch.wait(90) == 0
    assert site.notes() == ["a"]


def test_a_queue_is_paused_before_its_first_message(site: Site) -> None:
    done = site.command("queue", "pause", "default")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "warning: queue default: paused before its first message; queues are: none yet" in done.stderr
    assert site.command("queue", "pause", "default").stderr == ""
    assert "queue defualt: paused before its first message; did you mean default?" in (
        site.command("queue", "pause", "defualt").stderr
    )
    message = site.enqueue("record", name="a")
    assert site.drain().returncode == 0
    assert site.state(message) == "ready"
    assert site.command("queue", "resume", "default").returncode == 0
    assert site.drain().returncode == 0
    assert site.notes() == ["a"]


def test_a_message_rescheduled_while_ready_is_handled_once(site: Site) -> None:
    message = site.enqueue("record", name="a")
    site.command("reschedule", message, "--in", "100ms")
    mover = site.start("move")
    wait_until(lambda: site.state(message) == "ready", "promotion")
    mover.terminate()
    site.enqueue("record", name="b")
    assert site.drain().returncode == 0
    assert sorted(site.notes()) == ["a", "b"]
    counts = site.json("status")["queues"][0]
    assert (counts["ready"], counts["completed"]) == (0, 2)
