"""Whole launches, as processes: what they do, whom they make way for, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from tests.site import PATIENCE, wait_until

if TYPE_CHECKING:
    from tests.site import Launch, Site

LEASE = "{pollconsumer}:lease:consumer:default:0"


def test_a_launch_handles_what_is_ready_and_prints_nothing(site: Site) -> None:
    message = site.enqueue("record", name="a")
    done = site.command_from_the_start("run", "--until-empty")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert site.notes() == ["a"]
    status = site.json("status", message)
    assert status["state"] == "completed"
    assert status["attempts"] == 1
    times = status["timestamps"]
    assert times["scheduled_at"] <= times["enqueued_at"] <= times["reserved_at"] <= times["started_at"]
    assert times["started_at"] <= times["completed_at"]


def test_status_shows_the_last_launches_as_the_ledger_does(site: Site) -> None:
    for _ in range(2):
        site.drain()
    overview = site.json("status")
    assert [entry["stop_reason"] for entry in overview["launches"]] == ["empty", "empty"]
    assert overview["launches"] == site.json("launches")


def test_launches_are_shown_with_their_times_or_in_the_words_of_the_article(site: Site) -> None:
    assert site.command("launches").stdout.startswith("no launches yet")
    site.enqueue("record", name="a")
    site.drain()
    (started,) = (entry["started_at"] for entry in site.json("launches"))
    names, shown = site.command("launches", "--utc").stdout.splitlines()
    assert names.split()[:6] == ["started", "ran", "waited", "role", "stopped", "completed"]
    assert (shown.split()[5], started[11:19]) == ("1", shown.split()[0])
    _, shown = site.command("launches", "--ago").stdout.splitlines()
    assert re.match(r"(now|\d+ \w+ ago) \(\d+ seconds? running time\)  consumer  empty ", shown)


@pytest.mark.crossing
def test_a_launch_is_gone_before_its_window_ends(site: Site) -> None:
    options = ["--idle-time", "200ms", "--estimated-duration", "1ms"]
    for seconds in (3, 12, 50):  # a machine may be so busy that an end alone takes the two seconds of the margin
        assert site.command("run", "--timeout", f"{seconds}s", *options).returncode == 0
        entry = site.json("launches")[0]
        assert entry["stop_reason"] in ("no_time_to_handle", "no_time_to_idle")
        if entry["running_seconds"] < seconds:
            break
    assert entry["running_seconds"] < seconds


def test_an_idle_launch_is_woken_by_an_enqueue(site: Site) -> None:
    launch = site.start("run", "--idle-time", "50s", "--max-messages", "1")
    site.await_holder(launch.pid)
    site.enqueue("record", name="woken")
    assert launch.wait(90) == 0
    assert site.notes() == ["woken"]


@pytest.mark.crossing
def test_of_three_launches_one_works_one_waits_and_the_third_leaves_at_once(site: Site) -> None:
    first = site.start("run")
    site.await_holder(first.pid)
    second = site.start("run", "--until-empty")
    wait_until(lambda: second.poll() is not None or _waits(site), "a successor")
    third = site.command("run")
    assert (third.returncode, third.stdout, third.stderr) == (0, "", "")
    assert first.poll() is None
    assert second.poll() is None
    first.terminate()
    assert first.wait(90) == 0
    assert second.wait(90) == 0
    assert [entry["stop_reason"] for entry in site.json("launches")] == ["empty", "interrupted"]


def _waits(site: Site) -> bool:
    return "next:consumer:default" in site.control_keys()


def test_a_launch_that_is_to_run_only_if_the_lease_is_free_leaves_at_once(site: Site) -> None:
    first = site.start("run")
    site.await_holder(first.pid)
    done = site.command("-v", "run", "--if-free")
    assert done.returncode == 0
    assert "(lease held)" in done.stderr
    assert not _waits(site)
    assert first.poll() is None
    first.terminate()
    assert first.wait(90) == 0
    assert site.drain("--if-free").returncode == 0
    assert [entry["stop_reason"] for entry in site.json("launches")] == ["empty", "interrupted"]


def test_one_that_is_to_run_only_if_the_lease_is_free_takes_one_whose_processes_are_gone(site: Site) -> None:
    site.constants = {"TTL": 3600.0, "THOUGHT_DEAD_AFTER": 5400.0}
    message = site.enqueue("hold", name="a")
    first = site.start("run", "--timeout", "10m")
    site.await_note("begin a")
    os.kill(site.heartbeat_of(first.pid), signal.SIGKILL)
    first.kill()
    first.wait(90)
    site.open_gate()
    assert site.drain("--if-free", "--timeout", "10m").returncode == 0
    assert site.state(message) == "completed"


def test_a_successor_goes_on_where_its_predecessor_was_killed(site: Site) -> None:
    message = site.enqueue("hold", name="a")
    first = site.start("run")
    site.await_note("begin a")
    second = site.start("run", "--until-empty")
    wait_until(lambda: _waits(site), "a successor")
    first.kill()
    site.await_note("begin a", 2)
    site.open_gate()
    assert second.wait(90) == 0
    status = site.json("status", message)
    assert (status["state"], status["attempts"]) == ("completed", 2)
    assert [entry["stop_reason"] for entry in site.json("launches")] == ["empty", "died"]


@pytest.mark.usefixtures("quick_leases")
def test_the_lease_of_a_machine_that_vanished_lapses_by_itself(site: Site) -> None:
    message = site.enqueue("hold", name="a")
    first = site.start("run")
    site.await_note("begin a")
    with Redis(unix_socket_path=str(site.socket)) as redis:  # on another machine, whose processes nobody sees here
        holder = json.loads(redis.hget(LEASE, "holder")) | {"namespace": "pid:[1]"}
        redis.hset(LEASE, "holder", json.dumps(holder))
    os.kill(site.heartbeat_of(first.pid), signal.SIGKILL)
    first.kill()
    site.open_gate()
    assert site.drain().returncode == 0
    assert site.notes() == ["begin a", "begin a", "end a"]
    assert site.state(message) == "completed"


@pytest.mark.crossing
@pytest.mark.parametrize("waiting", [True, False])
def test_where_launch_and_heartbeat_are_killed_together_a_successor_on_the_machine_does_not_wait_for_the_lease(
    site: Site, waiting: bool
) -> None:
    site.constants = {"TTL": 3600.0, "THOUGHT_DEAD_AFTER": 5400.0}
    message = site.enqueue("hold", name="a")
    first = site.start("run", "--timeout", "10m")
    site.await_note("begin a")
    second = site.start("run", "--until-empty", "--timeout", "10m") if waiting else None
    if second is not None:
        wait_until(lambda: "next:consumer:default" in site.control_keys(), "a successor")
    heartbeat = site.heartbeat_of(first.pid)
    first.send_signal(signal.SIGSTOP)  # so that it does not see the heartbeat die first
    os.kill(heartbeat, signal.SIGKILL)
    first.kill()
    site.open_gate()
    second = second or site.start("run", "--until-empty", "--timeout", "10m")
    assert second.wait(PATIENCE) == 0
    assert site.notes() == ["begin a", "begin a", "end a"]
    assert site.state(message) == "completed"


@pytest.mark.crossing
def test_a_lease_whose_heartbeat_alone_is_dead_is_left_to_its_launch(site: Site) -> None:
    site.enqueue("hold", name="a")
    first = site.start("run", "--timeout", "10m")
    site.await_note("begin a")
    os.kill(site.heartbeat_of(first.pid), signal.SIGKILL)
    second = site.command("run", "--timeout", "2s", "--grace", "500ms")
    assert (second.returncode, second.stderr) == (0, "")
    assert site.holders() == {first.pid}


def test_the_ledger_has_the_offset_from_the_tick_and_the_time_that_the_exit_took(site: Site) -> None:
    site.drain("--schedule", "* * * * *")
    entry = site.json("launches")[0]
    assert -2 < entry["launch_offset_seconds"] <= 60
    assert 0 <= entry["exit_seconds"] < 60
    site.drain()
    assert site.json("launches")[0]["launch_offset_seconds"] is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_idle_launch_obeys_a_signal(site: Site, number: signal.Signals) -> None:
    launch = site.start("run", "--idle-time", "50s")
    site.await_holder(launch.pid)
    launch.send_signal(number)
    assert launch.wait(90) == 0
    assert site.json("launches")[0]["stop_reason"] == "interrupted"
    assert site.json("lease", "show") == []


@pytest.mark.crossing
def test_a_signal_lets_what_is_in_hand_finish_and_gives_the_rest_back_uncharged(site: Site) -> None:
    site.enqueue("record", name="quick")
    site.drain()  # so that the durations learned make the next launch reserve ahead
    held = site.enqueue("hold", name="a")
    rest = [site.enqueue("record", name=f"{n}") for n in range(5)]
    launch = site.start("run")
    site.await_note("begin a")
    launch.terminate()
    site.open_gate()
    assert launch.wait(90) == 0
    assert site.notes() == ["quick", "begin a", "end a"]
    assert site.state(held) == "completed"
    for message in rest:
        status = site.json("status", message)
        assert (status["state"], status["attempts"]) == ("ready", 0)
    assert site.drain().returncode == 0
    assert site.notes()[3:] == [f"{n}" for n in range(5)]


def test_a_second_signal_ends_the_launch_at_once_and_the_message_is_offered_again(site: Site) -> None:
    message = site.enqueue("hold", name="a")
    launch = site.start("run")
    site.await_note("begin a")
    wait_until(lambda: _ended_by_another_signal(launch), "the end")
    assert launch.returncode == 128 + signal.SIGTERM
    site.open_gate()
    assert site.drain().returncode == 0
    assert site.state(message) == "completed"


def _ended_by_another_signal(launch: Launch) -> bool:
    launch.terminate()
    return launch.poll() is not None


@pytest.mark.crossing
@pytest.mark.usefixtures("quick_leases")
def test_a_launch_that_was_suspended_beyond_its_lease_changes_nothing(site: Site) -> None:
    message = site.enqueue("hold", name="a")
    first = site.start("run")
    site.await_note("begin a")
    first.send_signal(signal.SIGSTOP)
    second = site.start("run", "--until-empty")
    site.await_note("begin a", 2)
    site.open_gate()
    assert second.wait(90) == 0
    assert site.json("status", message)["attempts"] == 2
    first.send_signal(signal.SIGCONT)
    assert first.wait(90) == 75
    assert "lease lost" in first.communicate()[1]
    status = site.json("status", message)
    assert (status["state"], status["attempts"]) == ("completed", 2)


@pytest.mark.usefixtures("quick_leases")
def test_a_launch_that_slept_through_its_window_has_lost_its_lease(site: Site) -> None:
    site.enqueue("hold", name="a")
    window = ["--timeout", "4s", "--min-margin", "500ms", "--estimated-duration", "1ms"]
    first = site.start("run", *window, "--grace", "120s")
    site.await_note("begin a")
    first.send_signal(signal.SIGSTOP)
    second = site.start("run")
    site.await_note("begin a", 2)  # at which the window of the first is over
    site.open_gate()
    first.send_signal(signal.SIGCONT)
    assert first.wait(90) == 75
    assert first.communicate()[1].startswith("pollconsumer: error: lease lost; ")
    second.terminate()
    assert second.wait(90) == 0


@pytest.mark.crossing
@pytest.mark.ends_with(1, -signal.SIGABRT)
@pytest.mark.parametrize(("handler", "codes"), [("hang", {124}), ("hang_with_the_lock", {1, -signal.SIGABRT})])
def test_the_watchdog_ends_a_launch_whose_handler_hangs(site: Site, handler: str, codes: set[int]) -> None:
    message = site.enqueue(handler)
    done = site.outlast(handler)
    assert done.returncode in codes
    assert f"in {handler}" in done.stderr
    wait_until(lambda: site.json("launches")[0]["stop_reason"] == "watchdog", "the ledger's entry")
    handlers = site.directory / "handlers.py"
    handlers.write_text(handlers.read_text().replace("while True:", "if False:").replace("range(2)", "range(1)"))
    site.drain()
    assert site.notes() == [handler, handler]
    assert site.json("status", message)["attempts"] == 2


@pytest.mark.parametrize("how", ["exit", "interrupt", "close", "chdir"])
def test_nothing_that_a_handler_does_to_its_process_ends_the_launch(site: Site, how: str) -> None:
    site.enqueue("leave", how=how)
    site.enqueue("record", name="next")
    assert site.drain().returncode == 0
    assert site.notes() == [f"leave {how}", "next"]


def test_the_embedded_server_is_started_again_when_it_dies_under_a_launch(site: Site) -> None:
    launch = site.start("run", "--idle-time", "1s", "--max-messages", "2")
    site.enqueue("record", name="before")
    site.await_note("before")
    os.kill(site.json("store", "status")["pid"], signal.SIGKILL)
    site.enqueue("record", name="after")
    assert launch.wait(90) == 0
    assert site.notes() == ["before", "after"]


@pytest.mark.crossing
def test_slots_handle_messages_at_the_same_time(site: Site) -> None:
    for name in ("a", "b"):
        site.enqueue("meet", name=name)
    assert site.drain("--concurrency", "2").returncode == 0
    assert sorted(site.notes()) == ["a", "b"]


def test_a_failed_attempt_is_repeated_through_the_schedule(site: Site) -> None:
    message = site.enqueue("fail", name="x", times=2)
    launch = site.start("run", "--max-messages", "3")
    assert launch.wait(90) == 0
    assert launch.communicate() == ("", "")
    status = site.json("status", message)
    assert (status["state"], status["attempts"]) == ("completed", 3)
    assert status["last_error"] == "ValueError: x is not ready"


def test_a_message_that_can_never_work_becomes_a_dead_letter_with_a_warning(site: Site) -> None:
    message = site.enqueue("fatal")
    done = site.drain()
    assert done.returncode == 0
    dead = f"dead letter: {message} (fatal), attempt 1: Fatal: never again (handlers.py:63)"
    assert done.stderr == f"pollconsumer: warning: {dead}\n"
    assert site.state(message) == "dead"


def test_arguments_that_do_not_fit_are_a_dead_letter_and_no_repetition(site: Site) -> None:
    message = site.enqueue("record", "--queue", "default", nome="a")
    assert site.drain().returncode == 0
    status = site.json("status", message)
    assert (status["state"], status["attempts"]) == ("dead", 1)
    assert status["last_error"].startswith("bad_arguments")


def test_parked_messages_are_offered_at_once_to_a_launch_that_has_their_handler(site: Site) -> None:
    module = site.directory / "handlers.py"
    known = module.read_text()
    module.write_text("from pollconsumer import PollConsumer\napp = PollConsumer()\n")
    found = [site.enqueue(handler, "--queue", "default", name=handler) for handler in ("record", "paused", "missing")]
    site.drain()
    assert {site.state(each) for each in found} == {"scheduled"}
    module.write_text(f"{known}\n@app.handler\ndef paused(name: str) -> None: ...\n")
    site.command("handler", "pause", "paused")
    done = site.drain()
    assert (done.returncode, [site.state(each) for each in found]) == (0, ["completed", "scheduled", "scheduled"])
    assert site.json("status", found[0])["last_error"] is None


def test_messages_for_an_unknown_handler_are_parked_and_not_charged(site: Site) -> None:
    message = site.enqueue("nobody", "--queue", "default")
    done = site.drain()
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    status = site.json("status", message)
    assert (status["state"], status["attempts"]) == ("scheduled", 0)
    assert "unknown_handler" in status["last_error"]
    assert site.json("status")["queues"][0]["parked"] == 1


def test_under_the_baton_a_launch_works_on_until_its_successor_waits(site: Site) -> None:
    first = site.start("run", "--handoff", "baton", "--timeout", "20s", "--idle-time", "15s")
    site.await_holder(first.pid)
    second = site.start("run", "--handoff", "baton", "--until-empty")
    assert first.wait(90) == 0
    assert second.wait(90) == 0
    second_entry, first_entry = site.json("launches")
    assert first_entry["stop_reason"] == "handed_over"
    assert second_entry["gap_seconds"] < 10


def test_a_scheduled_message_is_moved_when_due_and_not_before(site: Site) -> None:
    message = site.enqueue("record", "--in", "1s", name="due")
    mover = site.start("move", "--timeout", "20s")
    wait_until(lambda: site.state(message) == "ready", "promotion")
    mover.terminate()
    assert mover.wait(90) == 0
    times = site.json("status", message)["timestamps"]
    assert times["due_at"] <= times["enqueued_at"]


def test_an_overdue_message_that_no_launch_promotes_shows_in_status(site: Site) -> None:
    site.enqueue("record", "--in", "1ms", name="due")
    wait_until(lambda: site.json("status")["overdue"] == 1, "the due time")
    said = "overdue, and no launch is running: 1 in default; start 'pollconsumer run' every minute"
    assert said in site.command("status").stdout
    assert site.json("status")["mover_seen_seconds_ago"] is None


@pytest.mark.crossing
def test_a_server_that_says_nothing_does_not_keep_a_launch_beyond_its_grace(site: Site) -> None:
    site.enqueue("record", name="a")
    store, server = f"unix://{site.json('store', 'path')['socket']}", site.json("store", "status")["pid"]
    os.kill(server, signal.SIGSTOP)
    try:
        # Where imports take longer than window and grace, the watchdog ends the launch: with more time, it must not.
        flags = ["--store", store, "run", "--min-margin", "0s"]
        windows = [("2s", "1s"), ("15s", "5s"), ("30s", "30s")]
        assert any(
            site.command(*flags, "--timeout", timeout, "--grace", grace).returncode == 69 for timeout, grace in windows
        )
    finally:
        os.kill(server, signal.SIGCONT)


@pytest.mark.crossing
def test_a_wiped_store_is_refused_until_it_is_adopted(site: Site) -> None:
    site.enqueue("record", name="a")
    site.command("store", "stop")
    data = site.directory / "data" / "pollconsumer"
    data.rename(site.directory / "lost")
    for arguments in (["run"], ["move"], ["enqueue", "record", '{"name": "a"}'], ["status"]):
        refused = site.command(*arguments)
        assert refused.returncode == 78, arguments
        assert "store replaced" in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert site.command("store", "adopt").returncode == 0
    assert site.drain().returncode == 0


def test_a_launch_works_in_an_empty_environment(site: Site) -> None:
    site.enqueue("record", name="bare")
    environment, site.environment = site.environment, {n: site.environment[n] for n in site.environment if "XDG" in n}
    assert site.command_from_the_start("run", "--until-empty").returncode == 0
    site.environment = environment
    assert site.notes() == ["bare"]


def test_instances_share_a_queue(site: Site) -> None:
    launches = [site.start("run", "--instances", "2", "--max-messages", "1") for _ in range(2)]
    for launch in launches:
        site.await_holder(launch.pid)
    for name in ("a", "b"):
        site.enqueue("hold", name=name)
    site.await_note("begin a")
    site.await_note("begin b")
    site.open_gate()
    assert [launch.wait(90) for launch in launches] == [0, 0]


@pytest.mark.crossing
@pytest.mark.usefixtures("quick_leases")
def test_the_embedded_server_is_started_again_while_a_handler_is_busy(site: Site) -> None:
    message = site.enqueue("hold", name="a")
    launch = site.start("run", "--max-messages", "1")
    site.await_note("begin a")
    server = site.json("store", "status")["pid"]
    os.kill(server, signal.SIGKILL)
    # By its heartbeat: the launch itself is in the handler.
    wait_until(lambda: site.json("store", "status").get("pid", server) != server, "another server")
    site.open_gate()
    assert launch.wait(90) == 0
    assert site.state(message) == "completed"


def test_a_store_that_cannot_be_reached_costs_the_window_and_no_more(site: Site) -> None:
    store = f"unix://{site.directory}/nowhere"
    done = site.command("--store", store, "run", "--timeout", "1s", "--min-margin", "1ms")
    assert done.returncode == 69
    assert done.stderr.startswith("pollconsumer: error: store unreachable: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.crossing
@pytest.mark.usefixtures("quick_leases")
def test_breaking_a_lease_ends_its_holder(site: Site) -> None:
    launch = site.start("run")
    site.await_holder(launch.pid)
    refused = site.command("lease", "break")
    assert refused.returncode == 2
    assert launch.poll() is None
    assert site.command("lease", "break", "--yes").returncode == 0
    assert launch.wait(90) == 75
    assert launch.communicate()[1].count("\n") == 1
    assert site.command("lease", "break", "--yes").returncode == 66


@pytest.mark.crossing
def test_the_baton_can_be_passed_on_and_on(site: Site) -> None:
    flags = ["run", "--handoff", "baton", "--timeout", "60s", "--idle-time", "15s"]
    launch = site.start(*flags)
    for _ in range(3):
        site.await_holder(launch.pid)
        successor = site.start(*flags)
        assert launch.wait(90) == 0
        launch = successor
    site.await_holder(launch.pid)
    site.enqueue("record", name="a")
    site.await_note("a")
    assert [entry["stop_reason"] for entry in site.json("launches")] == [None, *["handed_over"] * 3]


@pytest.mark.crossing
def test_movers_pass_the_baton_too(site: Site) -> None:
    first = site.start("move", "--handoff", "baton", "--timeout", "20s")
    site.await_holder(first.pid)
    second = site.start("move", "--handoff", "baton", "--timeout", "20s")
    assert first.wait(90) == 0
    site.await_holder(second.pid)
    second.terminate()
    assert second.wait(90) == 0
    assert [entry["stop_reason"] for entry in site.json("launches")] == ["interrupted", "handed_over"]


def test_launches_that_start_together_in_an_empty_home_agree_on_the_store(site: Site) -> None:
    starts = [site.start(*arguments) for arguments in (["run", "--until-empty"], ["move", "--timeout", "1s"]) * 4]
    assert [start.wait(90) for start in starts] == [0] * 8
    assert "".join(start.communicate()[1] for start in starts) == ""


def test_a_launch_imports_nothing_that_is_slow_to_import(site: Site) -> None:
    slow = {"asyncio", "concurrent", "email", "http", "pydantic", "redis", "rich", "sqlite3", "ssl", "subprocess"}
    slow |= {"_hashlib", "secrets", "shutil", "stringprep"}
    site.enqueue("record", name="a")
    done = site.command_from_the_start("run", "--until-empty", PYTHONPROFILEIMPORTTIME="1")
    assert site.notes() == ["a"]
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "hiredis" in imported
    assert imported & slow == set()


def test_what_a_launch_imports_has_few_annotations_that_typing_compiles() -> None:
    """Fields of a named tuple or a typed dictionary whose annotations are text are compiled one by one, 10 µs each.
    Modules with many such fields do without the import of annotations from ``__future__``."""
    counting = """
import typing

compiled = []
init = typing.ForwardRef.__init__
typing.ForwardRef.__init__ = lambda self, *args, **options: compiled.append(args) or init(self, *args, **options)
import pollconsumer.interface.cli.launch_commands
import pollconsumer.interface.api.app
import pollconsumer.runtime.consumer

print(len(compiled))
"""
    done = subprocess.run([sys.executable, "-c", counting], capture_output=True, text=True, check=True)
    assert 10 < int(done.stdout) < 165


def test_garbage_is_collected_where_modules_of_the_user_are_imported_and_their_handlers_run(site: Site) -> None:
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(
            """
import gc

imported = gc.isenabled()

@app.handler
def collects() -> None:
    note(f"{imported} {gc.isenabled()}")
"""
        )
    site.enqueue("collects")
    assert site.command_from_the_start("run", "--until-empty").returncode == 0
    assert site.notes() == ["True True"]


def test_what_is_reserved_behind_a_long_message_is_handled_by_another_instance_or_cancelled(site: Site) -> None:
    for n in range(50):
        site.enqueue("record", name=f"before {n}")
    site.enqueue("hold", name="long")
    behind = [site.enqueue("record", name=f"behind {n}") for n in range(20)]
    one = site.start("run", "--instances", "2")
    site.await_note("begin long")
    wait_until(lambda: site.state(behind[-1]) == "ready", "that it is ready again")
    assert site.command("cancel", behind[-1]).returncode == 0
    other = site.start("run", "--instances", "2", "--until-empty")
    for n in range(19):
        site.await_note(f"behind {n}")
    assert "end long" not in site.notes()
    site.open_gate()
    site.await_note("end long")
    one.send_signal(signal.SIGTERM)
    assert [launch.wait(90) for launch in (one, other)] == [0, 0]
    assert len(site.notes()) == 50 + 2 + 19
