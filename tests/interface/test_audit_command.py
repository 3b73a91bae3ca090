"""What people did on the command line, and who they were."""

from __future__ import annotations

import json
import os
import pwd
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import StoreUnreachable
from pollconsumer.store import actions
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.redis_store import RedisStore
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.store.servers import Server

ME = f"{pwd.getpwuid(os.getuid()).pw_name}@{os.uname().nodename}"


def test_a_command_is_noted_with_user_and_host(
    run: Callable[..., tuple[int, str, str]], valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLLCONSUMER_STORE", valkey.url)
    monkeypatch.setenv("POLLCONSUMER_NAMESPACE", NAMESPACE)
    RedisStore(valkey.wire(), NAMESPACE).enqueue([message(name, delay=HOUR) for name in "abcde"])
    assert run("audit", "--json")[1] == "[]\n"
    run("cancel", "a")
    run("cancel", "--queue", "mail", "--yes")
    run("queue", "pause", "mail")
    found = json.loads(run("audit", "--json")[1])
    assert [(each["who"], each["what"], each["names"], each["number"]) for each in found] == [
        (ME, "pause", [], 0),
        (ME, "cancel", ["b", "c", "d", "e"], 4),
        (ME, "cancel", ["a"], 1),
    ]
    assert "b, c, d and 1 more" in run("audit", "--limit", "2")[1]
    assert len(json.loads(run("audit", "--limit", "2", "--json")[1])) == 2


UNREADABLE = {"mail": ["[", "{"], "other": ["1"]}
"""Queue to entries of its outbox that no launch could read."""


@pytest.fixture
def spooled(valkey: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file of the spool that no launch could read, beside a store with `UNREADABLE`."""
    for name, value in (("STORE", valkey.url), ("NAMESPACE", NAMESPACE), ("SPOOL", str(tmp_path / "spool"))):
        monkeypatch.setenv(f"POLLCONSUMER_{name}", value)
    for queue, entries in UNREADABLE.items():
        valkey.wire().command("RPUSH", Keys(NAMESPACE).queue(queue, "quarantine"), *entries)
        valkey.wire().command("SADD", Keys(NAMESPACE).control("queues"), queue)
    (tmp_path / "spool").mkdir(mode=0o700)
    file = tmp_path / "spool" / f"{NAMESPACE}@{1:016d}-{1:016x}.refused"
    file.write_bytes(b"[")
    return file


def contents(run: Callable[..., tuple[int, str, str]], *options: str) -> list[str]:
    return [each["content"] for each in json.loads(run("dead", "list", "--unreadable", *options, "--json")[1])]


def test_unreadable_messages_are_purged_by_queue_and_that_is_noted(
    run: Callable[..., tuple[int, str, str]], spooled: Path
) -> None:
    assert contents(run) == ["[", "{", "1", "["]
    assert contents(run, "--limit", "2") == ["[", "{"]
    assert contents(run, "--queue", "mail") == ["[", "{"]
    code, output, errors = run("dead", "purge", "--unreadable", "--queue", "other")
    assert (code, output, "1 unreadable message would be purged" in errors) == (2, "", True)
    assert run("dead", "purge", "--unreadable", "--queue", "mail", "--yes") == (0, "2 purged\n", "")
    assert contents(run, "--queue", "mail") == []
    assert contents(run) == ["1", "["]
    assert run("dead", "purge", "--unreadable", "--yes") == (0, "2 purged\n", "")
    assert contents(run) == []
    assert not spooled.exists()
    found = json.loads(run("audit", "--json")[1])
    assert [(each["who"], each["what"], each["queue"], each["names"]) for each in reversed(found)] == [
        (ME, "purge unreadable", "mail", []),
        (ME, "purge unreadable", "other", []),
        (ME, "purge unreadable", "", [spooled.name]),
    ]


@pytest.mark.parametrize(
    "selection", [["a"], ["--all"], ["--handler", "f"], ["--header", "a=b"], ["--created-by", "ann"]], ids=" ".join
)
def test_a_selection_of_dead_letters_is_refused_for_unreadable_messages(
    run: Callable[..., tuple[int, str, str]], spooled: Path, selection: list[str]
) -> None:
    acts = [["purge", "--yes"], *([["list"]] if selection[0] not in ("a", "--all") else [])]
    for act in acts:
        code, output, errors = run("dead", *act, "--unreadable", *selection)
        assert (code, output, errors) == (
            2,
            "",
            "pollconsumer: error: --unreadable and a selection of dead letters; --unreadable takes --queue alone\n",
        )
    assert len(contents(run)) == 4
    assert spooled.exists()


def test_the_commands_former_name_does_the_same_and_is_listed_nowhere(
    run: Callable[..., tuple[int, str, str]], valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLLCONSUMER_STORE", valkey.url)
    assert run("interventions", "--json") == run("audit", "--json") == (0, "[]\n", "")
    assert "interventions" not in run("--help")[1]


def test_a_command_that_loses_the_store_on_its_way_says_and_notes_what_it_did(
    run: Callable[..., tuple[int, str, str]], valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLLCONSUMER_STORE", valkey.url)
    monkeypatch.setenv("POLLCONSUMER_NAMESPACE", NAMESPACE)
    monkeypatch.setattr(actions, "MAX_PAGE_IDS", 2)
    original, calls = Wire.run, count(1)

    def lost(wire: Wire, *args: Any) -> Any:
        if next(calls) == lose:
            raise StoreUnreachable("store unreachable", "x", "it is away")
        return original(wire, *args)

    monkeypatch.setattr(Wire, "run", lost)
    RedisStore(valkey.wire(), NAMESPACE).enqueue([message(name, delay=HOUR) for name in "abcde"])
    lose = 2
    code, output, errors = run("cancel", "--queue", "mail", "--yes")
    first, *rest = errors.splitlines()
    assert (code, output, len(rest)) == (69, "", 1)
    assert first.startswith("pollconsumer: interrupted: 2 of 5 cancelled, and perhaps some of the next ")
    calls = count(1)
    lose = 1
    assert run("cancel", "--queue", "mail", "--yes")[2].count("\n") == 1
    assert [each["number"] for each in json.loads(run("audit", "--json")[1])] == [2]
