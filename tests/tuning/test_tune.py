"""What `tune` prints, and what it writes into the configuration file."""

from __future__ import annotations

import json
import os
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.histogram import Histogram
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.store.leases import Leases
from pollconsumer.tuning.config_edit import edit_consumer
from tests.conftest import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.store.servers import Server

    Run = Callable[..., tuple[int, str, str]]

LAUNCHES = 40
FILE = """\
# the top
handlers = []   # none

[consumer]      # every minute
schedule = "* * * * *"
tolerance_factor = 5    # as it was
# the end

[mover]
idle_time = "1s"
"""


@pytest.fixture
def slow(valkey: Server) -> Server:
    """The ledger and the durations of launches with messages of twenty seconds."""
    wire, durations = valkey.wire(), Histogram()
    durations.add_all([20.0] * 60)
    Leases(wire, NAMESPACE).learn("consumer:default", {"report": durations})
    for n in range(LAUNCHES):
        begin = 1_700_000_000_000 + n * 60_000
        entry: dict[str, Any] = {
            "launch_id": f"l{n}", "role": "consumer", "queues": ["default"], "stop_reason": "no_time_to_handle",
            "exit_code": 0, "lineage": "consumer:default:0", "started_ms": begin + 1200, "acquired_ms": begin + 1600,
            "ended_ms": begin + 58_000, "handled": 1 + n % 2, "launch_offset_seconds": 1.2, "next_tick_seconds": 58.8,
            "exit_seconds": 0.3, "platform": "cron", "launcher": "parallel",
        }  # fmt: skip
        wire.command("HSET", f"{{{NAMESPACE}}}:ledger", entry["launch_id"], json.dumps(entry))
        wire.command("LPUSH", f"{{{NAMESPACE}}}:launches", entry["launch_id"])
    return valkey


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valkey: Server) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLLCONSUMER_STORE", valkey.url)
    monkeypatch.setenv("POLLCONSUMER_NAMESPACE", NAMESPACE)
    file = tmp_path / "config.toml"
    file.write_text(FILE)
    file.chmod(0o640)
    return file


@pytest.mark.usefixtures("valkey")
def test_without_launches_it_says_what_is_missing_and_applies_nothing(place: Path, run: Run) -> None:
    code, out, err = run("tune", "--apply")
    assert (code, err) == (0, "")
    assert out == (
        "0 launches of no queue, durations of 0 messages\n"
        "too little is known:\n"
        "  launches: 0 ended, 30 are needed\n"
        "  durations: 0 messages measured, 50 are needed\n"
    )
    assert place.read_text() == FILE
    told = json.loads(run("tune", "--json")[1])
    assert (told["proposed"], len(told["missing"]), told["changes"]) == (None, 2, [])


@pytest.mark.usefixtures("slow")
def test_it_shows_both_settings_side_by_side_and_a_reason_for_each_change(place: Path, run: Run) -> None:
    code, out, err = run("tune")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "40 launches of default, durations of 60 messages"
    assert lines[1].split() == ["today", "proposed"]
    cells = {line[:22].strip(): line[22:].split() for line in lines[2:13]}
    assert cells["tolerance_factor"] == ["5", "1"]
    assert cells["overrun_target"] == ["1", "1"]
    today, proposed = (float(cell.rstrip("%")) for cell in cells["coverage"])
    assert today < proposed
    assert lines[13].startswith("tolerance_factor: 5 -> 1; a message takes 20s on average, ")
    assert lines[14].startswith("simulated: ")
    assert place.read_text() == FILE


@pytest.mark.usefixtures("slow")
def test_applying_changes_the_keys_of_the_file_and_nothing_else_in_it(place: Path, run: Run) -> None:
    told = json.loads(run("tune", "--apply", "--json")[1])
    assert told["applied_to"] == str(place)
    assert told["changes"][0]["setting"] == "tolerance_factor"
    assert told["proposed"]["tolerance_factor"] == 1
    assert told["proposed"]["wait_seconds"] < told["today"]["wait_seconds"]
    assert place.read_text() == FILE.replace("tolerance_factor = 5 ", "tolerance_factor = 1 ")
    assert place.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in place.parent.iterdir() if "config" in each.name] == ["config.toml"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "handlers = []",
        "handlers = []\r\n[consumer]\r\nidle_time = 5\r\n",
        "[mover]\nidle_time = '1s' # é\n",
        "consumer.idle_time = 5\nmover.idle_time = 2\n",
        "consumer = { idle_time = 5 } # all of it\n",
        "[consumer]",
        "[consumer]\n\n# about the mover\n[mover]\nidle_time = 3\n",
    ],
)
def test_every_way_to_write_the_section_is_kept(text: str, place: Path) -> None:
    place.write_bytes(text.encode())
    before: dict[str, Any] = tomllib.loads(text)
    edit_consumer(load_settings(place), {"tolerance_factor": 1}, {"tolerance_factor": 1})
    written = place.read_bytes().decode()
    after = tomllib.loads(written)
    assert after.pop("consumer") == before.pop("consumer", {}) | {"tolerance_factor": 1}
    assert after == before
    assert all(line.strip() in written for line in text.splitlines() if not line.startswith("consumer ="))
    assert "\r\n" not in text or "\n\n" not in written.replace("\r\n", "")


@pytest.mark.usefixtures("slow", "place")
def test_what_the_file_cannot_decide_is_refused(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLLCONSUMER_CONSUMER__TOLERANCE_FACTOR", "4")
    code, out, err = run("tune", "--apply")
    assert (code, out) == (78, "")
    assert err == (
        "pollconsumer: error: POLLCONSUMER_CONSUMER__TOLERANCE_FACTOR: 4; "
        "it overrides the file: unset it, and apply again\n"
    )
    assert place.read_text() == FILE
    monkeypatch.delenv("POLLCONSUMER_CONSUMER__TOLERANCE_FACTOR")
    place.unlink()
    code, _, err = run("tune", "--apply")
    assert (code, err.count("\n")) == (78, 1)
    assert err.startswith("pollconsumer: error: no configuration file: config.toml; ")


@pytest.mark.usefixtures("slow")
def test_a_link_to_the_file_stays_one(place: Path, run: Run) -> None:
    real = place.rename(place.with_name("real.toml"))
    place.symlink_to(real)
    assert run("tune", "--apply")[0] == 0
    assert place.is_symlink()
    assert "tolerance_factor = 1 " in real.read_text()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.usefixtures("slow")
def test_a_directory_that_may_not_be_written_is_an_error_of_its_own(place: Path, run: Run) -> None:
    place.parent.chmod(0o500)
    try:
        code, _, err = run("tune", "--apply")
    finally:
        place.parent.chmod(0o700)
    assert (code, err.count("\n")) == (77, 1)
    assert place.read_text() == FILE
