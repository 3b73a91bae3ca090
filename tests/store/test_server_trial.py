"""A trial of the server: it lacks nothing, or what it lacks is named; in any case no key of the trial is left."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import StoreRefused
from pollconsumer.interface.memory_store import SCRIPTS, DirectConnection
from pollconsumer.store import rights, server_trial
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.replies import ErrorReply, Unanswered
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.server_trial import STEPS, ServerTrial, TriedQueue
from tests.conftest import NAMESPACE
from tests.fast_fakeredis.store import FastStore
from tests.store.acting import message
from tests.store.servers import Impatient, Server, snapshot
from tests.store.test_rights import leave_out_acl_check_cmd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pollconsumer.store.client.connection import Command
    from pollconsumer.store.client.wire import Wire

ROLES = f"EVALSHA {rights.PRODUCER} {rights.LAUNCH} {rights.OPERATOR}"
REFUSED = "refused: {}; grant it to the store's user, or have the server enable it"
WAITING = "wake-waiting-launch"


@pytest.fixture(autouse=True)
def _brief_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not come is not waited for."""
    monkeypatch.setattr(server_trial, "BLOCKED_AFTER", 0.0)


@pytest.fixture
def untouched(valkey: Server) -> Iterator[None]:
    """A real queue, which is afterwards as it was, with nothing beside it."""
    Producer(valkey.wire(), NAMESPACE).enqueue([message("a", key="k"), message("b", delay=1000)])
    before = snapshot(valkey.wire())
    yield
    assert snapshot(valkey.wire()) == before


def lacks(wire: Wire, another: Wire) -> dict[str, str]:
    return {step: str(error) for step, error in ServerTrial(wire, another, NAMESPACE).lacks()}


def test_a_server_lacks_nothing(
    server: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "fakeredis" in request.node.name:
        monkeypatch.delitem(STEPS, WAITING)  # nothing waits on it
    assert lacks(server.wire(), server.wire()) == {}


@pytest.mark.usefixtures("untouched")
def test_no_key_is_left_and_none_of_the_real_queues_is_touched(valkey: Server) -> None:
    assert lacks(valkey.wire(), valkey.wire()) == {}


# Users


class User:
    """A user that may use the documented keys, and the commands of all roles but one or two."""

    def __init__(self, server: Server, *, without: str = "", nor: str = "") -> None:
        self._admin, self._name = server.wire(), f"trial-{secrets.token_hex(4)}"
        self._url = server.url.replace("unix://", f"unix://{self._name}:secret@")
        granted = [f"+{each.lower()}" for each in ROLES.split() if each not in (without, nor)]
        keys = (f"~{{{NAMESPACE}}}:*", f"~{{{NAMESPACE}:*}}:*")
        self._admin.command("ACL", "SETUSER", self._name, "on", ">secret", "resetchannels", *keys, "-@all", *granted)

    def lacks(self) -> list[tuple[str, str, int]]:
        wire, another = Wire(self._url, Impatient), Wire(self._url, Impatient)
        found = ServerTrial(wire, another, NAMESPACE).lacks()
        wire.close()
        another.close()
        self._admin.command("ACL", "DELUSER", self._name)
        return [(each.step, str(each.error), each.exit_code) for each in found]


@pytest.mark.usefixtures("untouched")
def test_the_rights_of_all_roles_in_the_namespace_are_enough(valkey: Server) -> None:
    assert User(valkey).lacks() == []


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("command", ["BLPOP", "LPOS", "ZMSCORE"])
def test_a_command_that_the_user_may_not_use_is_named_and_nothing_is_begun(valkey: Server, command: str) -> None:
    assert User(valkey, without=command).lacks() == [("commands", REFUSED.format(command), 77)]


@pytest.mark.usefixtures("untouched")
def test_two_commands_are_two_lines(valkey: Server) -> None:
    found = User(valkey, without="LPOS", nor="BLPOP").lacks()
    assert [error for _, error, _ in found] == [REFUSED.format("BLPOP"), REFUSED.format("LPOS")]


# Servers that lack something


class Limited:
    """A server without `acl_check_cmd`, and without ``missing``."""

    def __init__(self, missing: str, said: str) -> None:
        self._whole, self._missing, self._said = FastStore(time.time), missing, said

    def execute(self, command: Command) -> Any:
        name = command[0]
        if name in (self._missing, "NO-SUCH-COMMAND"):
            return ErrorReply(self._said.format(name))
        return b"" if name == "INFO" else self._whole.execute(command)  # fakeredis has none

    def wire(self) -> Wire:
        return Wire(
            "redis://in-memory", lambda: Budget(1), connect=lambda: DirectConnection(self.execute), scripts=SCRIPTS
        )


@pytest.mark.parametrize(
    "said",
    [
        "ERR unknown command '{}', with args beginning with: ",
        "ERR unknown command `{}`, with args beginning with: `{{tests:`",
        "unknown command {}",
    ],
)
@pytest.mark.parametrize("missing", ["LPOS", "BLPOP", "ZRANGEBYLEX"])
def test_a_command_that_a_server_without_acl_check_cmd_does_not_know_is_named(missing: str, said: str) -> None:
    server = Limited(missing, said)
    assert lacks(server.wire(), server.wire()) == {"commands": REFUSED.format(missing)}


@pytest.mark.usefixtures("untouched")
def test_a_server_without_acl_check_cmd_lacks_nothing(valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_acl_check_cmd(monkeypatch)
    wire, another = Wire(valkey.url, Impatient), Wire(valkey.url, Impatient)
    assert lacks(wire, another) == {}
    wire.close()
    another.close()


class Changed(Wire):
    """A connection that gets another ``answer`` of a script than the server's."""

    def __init__(self, url: str, script: str, answer: Any) -> None:
        super().__init__(url, Impatient)
        self._changed, self._answer = self.scripts[script], answer

    def receive(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        answers = super().receive(commands, blocking=blocking)
        changed = [command[:2] == ("EVALSHA", self._changed.sha) for command in commands]
        return [self._answer if each else answer for each, answer in zip(changed, answers, strict=True)]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("script", "answer", "steps", "said"),
    [
        ("renew", [0, b"1", b"1"], {"hold-lease"}, "answered otherwise: False, not True;"),
        ("promote", [0, -1, 0, 0], {"try-again", "promote-due-message", "wait-for-signal"}, "otherwise: 0, not 1;"),
        ("signal", b"sent", {"wait-for-signal"}, "answered otherwise: False, not True;"),
        ("due", [b"x", [b"y"], [b"1"], [b"{"], [b""]], {"enqueue-occurrence"}, ""),
        ("trim", 0, {"complete-message"}, "answered otherwise: 0, not 2;"),
        ("recover", b"OK", {*STEPS}, "not an answer of Redis: "),
        ("cancel", [b"completed"], {"promote-due-message"}, "cannot cancel: c; it is completed already"),
    ],
)
def test_what_a_server_answers_otherwise_is_named(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, script: str, answer: Any, steps: set[str], said: str
) -> None:
    monkeypatch.setattr(server_trial, "WITHIN", 0.02)
    wire = Changed(valkey.url, script, answer)
    found = lacks(wire, valkey.wire())
    wire.close()
    assert {*found} - {WAITING} == steps - {WAITING}
    assert all(said in each for step, each in found.items() if step != WAITING)


class Unwoken(Wire):
    """A connection to a server on which what a script adds to a list wakes nobody."""

    def send(self, commands: Sequence[Command]) -> None:
        super().send([("BLPOP", *(f"{each}-" for each in c[1:-1]), c[-1]) if c[0] == "BLPOP" else c for c in commands])


@pytest.mark.usefixtures("untouched")
def test_a_server_whose_scripts_wake_nobody_is_told(valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_trial, "WITHIN", 0.2)
    monkeypatch.setattr(server_trial, "BLOCKED_AFTER", 0.0)
    another = Unwoken(valkey.url, Impatient)
    found = lacks(valkey.wire(), another)
    another.close()
    assert [*found] == [WAITING]
    assert "'late', not 'at once'" in found[WAITING]


class Silent(Wire):
    """A connection that gets no answer about the queue of one step."""

    def receive(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        if any("use-up-rate" in str(part) for command in commands for part in command):
            self.close()
            raise Unanswered("connection closed", sent=True)
        return super().receive(commands, blocking=blocking)


def test_a_server_that_does_not_answer_is_told_with_the_step_and_tried_no_further(valkey: Server) -> None:
    wire = Silent(valkey.url, Impatient)
    trial = ServerTrial(wire, valkey.wire(), NAMESPACE)
    found = [(each.step, each.exit_code) for each in trial.lacks()]
    wire.close()
    assert found == [("use-up-rate", 69), (f"removal of {trial.namespace}", 69)]


# Whatever ends it


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("error", [KeyboardInterrupt, AssertionError])
def test_no_key_is_left_by_what_is_interrupted(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def interrupted(queue: TriedQueue) -> None:
        queue.enqueue("a", "b", key="k")
        raise error

    monkeypatch.setitem(STEPS, "use-up-rate", interrupted)
    with pytest.raises(error):
        lacks(valkey.wire(), valkey.wire())


@pytest.mark.usefixtures("untouched")
def test_no_key_is_left_by_a_step_that_fails(valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(queue: TriedQueue) -> None:
        queue.enqueue("a", "b", key="k")
        raise StoreRefused("answered otherwise", 1, "no")

    monkeypatch.setitem(STEPS, "use-up-rate", failing)
    assert lacks(valkey.wire(), valkey.wire()) == {"use-up-rate": "answered otherwise: 1; no"}
