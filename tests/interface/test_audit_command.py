"""What people did on the command line, and who they were."""

from __future__ import annotations

import json
import os
import pwd
from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.queues.redis_store import RedisStore
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, message

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_the_commands_former_name_does_the_same_and_is_listed_nowhere(
    run: Callable[..., tuple[int, str, str]], valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLLCONSUMER_STORE", valkey.url)
    assert run("interventions", "--json") == run("audit", "--json") == (0, "[]\n", "")
    assert "interventions" not in run("--help")[1]
