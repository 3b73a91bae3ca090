"""Stores as earlier versions exported them, with a message in every state: this version reads all, and drains them.

Those of 0.1.0 and of the candidate of 1.0.0 (7a55f66, f8f83a10) lack what came later. `tests.compatibility.stored`
writes that of a release.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compatibility.stored import CONFIGURATION, STORES
from tests.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
WITH_MORE = sorted(each.stem for each in STORES.glob("*.ndjson") if each.stem not in ("0.1.0", "candidate"))
"""The versions whose stores hold what `kinds.enqueue_more` enqueues, too."""
OCCURRENCE = re.compile("(nightly|at-run-time)@")
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


MORE = {
    "completed": ["logged"],
    "ready": [
        "batch.0", "batch.1", "bulk-1", "bulk-2", "chain", "first-in-order", "key-until-start", "next-in-order",
        "with-callback", "with-rate",
    ],
    "scheduled": ["approved", "caller", "child of caller", "stepped"],
}  # fmt: skip
HANDLED_MORE = [
    "batch.0: attempt 1, 8 characters, headers {}",
    "batch.1: attempt 1, 8 characters, headers {}",
    "batch:ended: 2 of 2",
    "caller: its child gave 5",
    "chain+2: after 1",
    "chain: after 0",
    "child of caller: called",
    "first-in-order: attempt 1, 0 characters, headers {'created-by': 'ada'}",
    "key-until-start: attempt 1, 0 characters, headers {}",
    "next-in-order: attempt 1, 0 characters, headers {'created-by': 'ada'}",
    "stepped: its step gave 1",
    "with-callback: attempt 1, 0 characters, headers {}",
    "with-callback:then: attempt 1, 0 characters, headers {}",
    "with-rate: attempt 1, 0 characters, headers {}",
]


@pytest.fixture(params=["0.1.0", "candidate", *WITH_MORE])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def site(version: str) -> Iterator[Site]:
    """With the store of the earlier version, and its handlers."""
    site = Site()
    (site.directory / "config.toml").write_text(CONFIGURATION)
    shutil.copy(HERE / "kinds.py", site.directory)
    (site.directory / "gate").touch()
    imported = site.command("store", "import", str(STORES / f"{version}.ndjson"))
    assert (imported.returncode, imported.stderr) == (0, "")
    yield site
    site.close()


def named(id: str) -> str:  # noqa: A002  as in messages
    """The id of a message that is called has a random part."""
    return "child of caller" if id.startswith("caller:") else id


def states(site: Site) -> dict[str, list[str]]:
    """Ids by state, without occurrences: how many there are depends on the day."""
    found: dict[str, list[str]] = {}
    for each in site.json("list", "--limit", "100"):
        if not OCCURRENCE.match(each["id"]):
            found.setdefault(each["state"], []).append(named(each["id"]))
    return {state: sorted(ids) for state, ids in found.items()}


def drain(site: Site) -> list[str]:
    """What the handlers note, in its order, without occurrences."""
    assert site.command("queue", "resume", "limited").returncode == 0
    while {*states(site)} & {"ready", "reserved"}:
        done = site.drain()
        assert (done.returncode, "error" in done.stderr) == (0, False)
    told = (note.partition(": ") for note in site.notes())
    return [f"{named(whose)}: {what}" for whose, _, what in told if not OCCURRENCE.match(whose)]


def test_each_message_is_shown_in_the_state_in_which_the_earlier_version_left_it(site: Site, version: str) -> None:
    more = MORE if version in WITH_MORE else {}
    assert states(site) == {state: sorted([*ids, *more.get(state, ())]) for state, ids in STATES.items()}
    dead = site.json("status", "dead")
    assert (dead["handler"], dead["last_error"].splitlines()[0]) == ("fatal", "Fatal: no")
    resumed = site.json("status", "resumed")
    assert (resumed["checkpoint"], resumed["progress"]["note"]) == ({"done": 2}, "half")
    recurrences = {each["name"] for each in site.json("recurrences", "list")}
    assert recurrences == ({"nightly", "at-run-time"} if more else {"nightly"})


def test_all_that_is_due_is_handled_once_and_nothing_that_had_ended_is(site: Site, version: str) -> None:
    has_more = version in WITH_MORE
    notes = drain(site)
    assert sorted(notes) == sorted([*HANDLED, *(HANDLED_MORE if has_more else ())])
    ended = states(site)
    assert ended["scheduled"] == (["approved", "bulk-1", "bulk-2", "far"] if has_more else ["far"])
    assert ended["dead"] == ["dead", "held_once"]
    assert ended["expired"] == ["expired", "to-expire"]
    assert {*ended} == {"completed", "cancelled", "dead", "expired", "scheduled"}


def test_its_ids_and_keys_are_still_held_and_its_dead_letter_can_be_redriven(site: Site) -> None:
    for handler, held, options in (("record", "completed", ["--id", "completed"]), ("record", "keyed", ["--key", "k"])):
        assert site.enqueue(handler, *options) == held
    assert site.command("dead", "redrive", "dead").returncode == 0
    assert "dead: an end" in drain(site)


@pytest.mark.parametrize("version", WITH_MORE, indirect=True)
def test_what_waits_for_a_person_goes_on_once_the_person_acts(site: Site) -> None:
    assert [each["name"] for each in site.json("status", "approved")["signals"]] == ["other"]
    drain(site)
    assert site.command("handler", "resume", "together").returncode == 0
    assert site.command("signal", "approved", "approved", '"ada"').returncode == 0
    assert {"approved: approved by ada", "bulk-1: in bulk", "bulk-2: in bulk"} < {*drain(site)}


@pytest.mark.parametrize("version", WITH_MORE, indirect=True)
def test_what_is_known_of_earlier_work_is_still_shown(site: Site) -> None:
    [log] = site.json("status", "logged")["log"]
    assert "a line of logged" in log["text"]
    steps = site.json("status", "stepped")["steps"]
    assert [(each["name"], each["result"]) for each in steps][:1] == [("one", 1)]
    audited = {(each["what"], *each["names"]) for each in site.json("audit")}
    assert audited > {("cancel", "cancelled"), ("pause", "together")}
    [batch] = site.json("batch", "list")
    assert (batch["id"], batch["state"], batch["outstanding"]) == ("batch", "closed", 2)
    notes = drain(site)
    assert notes.index("first-in-order: attempt 1, 0 characters, headers {'created-by': 'ada'}") < notes.index(
        "next-in-order: attempt 1, 0 characters, headers {'created-by': 'ada'}"
    )
    assert site.json("batch", "show", "batch")["state"] == "ended"
