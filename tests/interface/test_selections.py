"""Many recurrences, or all queues, that a person pauses, resumes or removes by one command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.site import Site

ADDED = {"check:1": "ann", "check:2": "bob", "other": "ann"}


@pytest.fixture
def added(site: Site) -> Site:
    for name, who in ADDED.items():
        words = ["--every", "1h", "--first", "next", "--created-by", who]
        assert site.command("recurrences", "add", name, "fatal", *words).returncode == 0
    return site


def states(site: Site) -> dict[str, str]:
    return {each["name"]: each["next"] for each in site.json("recurrences", "list")}


def paused(site: Site) -> set[str]:
    return {name for name, following in states(site).items() if following == "paused"}


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (["--prefix", "check:"], {"check:1", "check:2"}),
        (["--created-by", "ann"], {"check:1", "other"}),
        (["--prefix", "check:", "--created-by", "ann"], {"check:1"}),
    ],
)
def test_recurrences_are_paused_resumed_and_removed_by_prefix_and_creator(
    added: Site, selection: list[str], chosen: set[str]
) -> None:
    count = len(chosen)
    assert added.json("recurrences", "pause", *selection) == {"would_be_paused": count}
    assert paused(added) == set()
    assert added.json("recurrences", "pause", *selection, "--yes") == {"paused": count, "left": []}
    assert paused(added) == chosen
    assert added.json("recurrences", "resume", *selection, "--yes") == {"resumed": count, "left": []}
    assert paused(added) == set()
    told = added.command("recurrences", "remove", *selection)
    assert told.stdout == f"{count} recurrence{'s' * (count != 1)} would be removed; give --yes\n"
    assert added.command("recurrences", "remove", *selection, "--yes").stdout == f"{count} removed\n"
    assert states(added).keys() == ADDED.keys() - chosen
    noted = [(each["what"], *each["names"]) for each in added.json("audit") if each["what"] != "put"]
    assert sorted(noted) == sorted((what, name) for what in ("pause", "resume", "remove") for name in chosen)


def test_what_cannot_be_resumed_is_left_and_named(added: Site) -> None:
    assert added.command("recurrences", "add", "check:3", "fatal", "--every", "1h", "--disabled").returncode == 0
    told = added.command("recurrences", "resume", "--prefix", "check:", "--yes")
    assert (told.returncode, told.stdout) == (0, "2 resumed, 1 left: disabled, or removed meanwhile\n")
    assert added.json("recurrences", "resume", "--prefix", "check:", "--yes") == {"resumed": 2, "left": ["check:3"]}


@pytest.mark.parametrize("command", ["pause", "resume", "remove"])
@pytest.mark.parametrize(
    "given", [[], ["check:1", "--prefix", "check:"], ["check:1", "--created-by", "ann"], ["--yes"]]
)
def test_recurrences_are_named_or_selected(added: Site, command: str, given: list[str]) -> None:
    refused = added.command("recurrences", command, *given)
    assert (refused.returncode, "give the name of one, or --prefix or --created-by" in refused.stderr) == (2, True)
    assert states(added).keys() == ADDED.keys()


def test_one_recurrence_is_acted_on_without_being_asked_twice(added: Site) -> None:
    for command, left in (("pause", {"check:1"}), ("resume", set[str]())):
        done = added.command("recurrences", command, "check:1")
        assert (done.returncode, done.stdout, paused(added)) == (0, "", left)
    assert added.command("recurrences", "remove", "check:1").stdout == ""
    gone = added.command("recurrences", "remove", "check:1")
    assert (gone.returncode, "no such recurrence: check:1" in gone.stderr) == (66, True)


def test_all_queues_are_paused_and_resumed_at_once(site: Site) -> None:
    assert site.command("queue", "pause", "--all").returncode == 0  # there is none
    for queue in ("one", "two"):
        site.enqueue("record", "--queue", queue, name=queue)

    def pauses() -> dict[str, Any]:
        return {each["name"]: each["paused"] for each in site.json("queue", "list")}

    assert site.command("queue", "pause", "--all").stderr == ""
    assert pauses() == {"one": True, "two": True}
    assert site.command("queue", "resume", "--all").returncode == 0
    assert pauses() == {"one": False, "two": False}
    assert site.command("queue", "pause", "--all", "--for", "2h").returncode == 0
    assert all(pauses().values())
    noted = {(each["what"], each["queue"]) for each in site.json("audit")}
    assert noted == {(what, queue) for what in ("pause", "resume") for queue in ("one", "two")}


@pytest.mark.parametrize("command", ["pause", "resume"])
@pytest.mark.parametrize("given", [[], ["one", "--all"]])
def test_one_queue_is_named_or_all_are_meant(site: Site, command: str, given: list[str]) -> None:
    refused = site.command("queue", command, *given)
    assert (refused.returncode, "give the name of one, or --all" in refused.stderr) == (2, True)
