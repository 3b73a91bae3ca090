"""A store as the last version exported it, with a message in every state: this version reads all, and drains it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compatibility.stored import CONFIGURATION
from tests.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
STATES = {
    "completed": ["child", "completed", "completed-large", "parent", "with-a-result"],
    "cancelled": ["cancelled"],
    "dead": ["dead"],
    "expired": ["expired"],
    "ready": [
        "background", "keyed", "large", "limited", "place", "ready", "to-expire", "urgent", "waits-for-a-place",
        "with-headers",
    ],
    "reserved": ["held", "held_once"],
    "scheduled": ["far", "resumed", "retried", "soon"],
}  # fmt: skip
HANDLED = [
    "background: attempt 1, 0 characters, headers {}",
    "held: begin 2",
    "held: end 2",
    "keyed: attempt 1, 0 characters, headers {}",
    "large: attempt 1, 3000 characters, headers {}",
    "limited: attempt 1, 0 characters, headers {}",
    "place: attempt 1, 0 characters, headers {}",
    "ready: attempt 1, 0 characters, headers {}",
    "resumed: found {'done': 2}",
    "retried: attempt 2",
    "soon: attempt 1, 0 characters, headers {}",
    "urgent: attempt 1, 0 characters, headers {}",
    "waits-for-a-place: attempt 1, 0 characters, headers {}",
    "with-headers: attempt 1, 0 characters, headers {'customer': '7'}",
]


@pytest.fixture
def site() -> Iterator[Site]:
    """With the store of the earlier version, and its handlers."""
    site = Site()
    (site.directory / "config.toml").write_text(CONFIGURATION)
    shutil.copy(HERE / "kinds.py", site.directory)
    (site.directory / "gate").touch()
    imported = site.command("store", "import", str(HERE / "earlier_store.ndjson"))
    assert (imported.returncode, imported.stderr) == (0, "")
    yield site
    site.close()


def states(site: Site) -> dict[str, list[str]]:
    """Ids by state, without occurrences: how many there are depends on the day."""
    found: dict[str, list[str]] = {}
    for each in site.json("list", "--limit", "100"):
        if "@" not in each["id"]:
            found.setdefault(each["state"], []).append(each["id"])
    return {state: sorted(ids) for state, ids in found.items()}


def drain(site: Site) -> list[str]:
    """What the handlers note, in its order."""
    assert site.command("queue", "resume", "limited").returncode == 0
    while {*states(site)} & {"ready", "reserved"}:
        done = site.drain()
        assert (done.returncode, "error" in done.stderr) == (0, False)
    return [note for note in site.notes() if "@" not in note]


def test_each_message_is_shown_in_the_state_in_which_the_earlier_version_left_it(site: Site) -> None:
    assert states(site) == STATES
    dead = site.json("status", "dead")
    assert (dead["handler"], dead["last_error"].splitlines()[0]) == ("fatal", "Fatal: no")
    resumed = site.json("status", "resumed")
    assert (resumed["checkpoint"], resumed["progress"]["note"]) == ({"done": 2}, "half")
    assert [each["name"] for each in site.json("recurrences", "list")] == ["nightly"]


def test_all_that_is_due_is_handled_once_and_nothing_that_had_ended_is(site: Site) -> None:
    notes = drain(site)
    assert sorted(notes) == HANDLED
    ended = states(site)
    assert ended["scheduled"] == ["far"]
    assert ended["dead"] == ["dead", "held_once"]
    assert ended["expired"] == ["expired", "to-expire"]
    assert {*ended} == {"completed", "cancelled", "dead", "expired", "scheduled"}


def test_its_ids_and_keys_are_still_held_and_its_dead_letter_can_be_redriven(site: Site) -> None:
    for handler, held, options in (("record", "completed", ["--id", "completed"]), ("record", "keyed", ["--key", "k"])):
        assert site.enqueue(handler, *options) == held
    assert site.command("dead", "redrive", "dead").returncode == 0
    assert "dead: an end" in drain(site)
