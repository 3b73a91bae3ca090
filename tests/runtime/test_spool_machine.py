"""Spooled messages become one message each, whoever dies at which step, and whatever the store has forgotten.

A step is what a process does to the world: a call that changes the directory, a command to the store. Between two of
them it does not matter where a process dies.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from pollconsumer.runtime.spool import Intake, Spool
from pollconsumer.store.queues.producer import Producer
from tests.conftest import NAMESPACE
from tests.store.acting import message

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from pollconsumer.store.client.connection import Command
    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server

QUEUES = ("mail", "web")
STEPS = ("mkdir", "open", "pwrite", "fsync", "rename", "unlink")
"""What a process does to a directory."""


class Killed(BaseException):
    """The process is gone."""


class Death:
    """Kills before a step, once the store was asked so many times; a command is a step before the store acts, and one
    before its answer is heard. A dead process does nothing more to the world: handlers of exceptions, which it would
    not run, have no effect; that its descriptors are closed is the kernel's part."""

    def __init__(self, steps: int, asks: int = 0) -> None:
        self._steps, self._asks = steps, 2 * asks
        self._thread = threading.get_ident()

    def step(self) -> None:
        if self._asks <= 0:
            self._steps -= 1
            if self._steps <= 0:
                raise Killed

    def kills(self, act: Callable[[], object], wire: Wire) -> bool:
        """Whether ``act`` came to its death."""

        def stepping(call: Callable[..., Any]) -> Callable[..., Any]:
            def do(*given: Any, **named: Any) -> Any:
                if threading.get_ident() == self._thread:
                    self.step()
                return call(*given, **named)

            return do

        once = wire.once

        def asked(commands: list[Command], **options: Any) -> list[Any]:
            self._ask()
            answers = once(commands, **options)
            self._ask()
            return answers

        with ExitStack() as patches:
            patches.enter_context(patch.object(wire, "once", asked))
            for name in STEPS:
                patches.enter_context(patch.object(os, name, stepping(getattr(os, name))))
            try:
                act()
            except Killed:
                return True
        return False

    def _ask(self) -> None:
        self._asks -= 1
        self.step()


class SpoolMachine(RuleBasedStateMachine):
    server: Server

    def __init__(self) -> None:
        super().__init__()
        self._wire = self.server.wire()
        self._wire.command("FLUSHALL")
        self._place = Path(tempfile.mkdtemp())
        self._accepted, self._perhaps = set[str](), set[str]()
        self._handled = list[str]()
        self._made = 0
        self._new_processes()

    def _new_processes(self) -> None:
        self._spool = Spool(self._place / "spool", NAMESPACE)
        self._producer = Producer(self._wire, NAMESPACE)
        self._intake = Intake(self._spool, self._producer, self._refuse_news)

    def _refuse_news(self, event: object) -> None:
        raise AssertionError(event)

    def _new(self, where: list[int]) -> list[Any]:
        made = [message(f"m{self._made + at}", queue=QUEUES[queue]) for at, queue in enumerate(where)]
        self._made += len(made)
        return made

    @rule(where=st.lists(st.integers(0, 1), min_size=1, max_size=4))
    def spool(self, where: list[int]) -> None:
        messages = self._new(where)
        self._spool.put(messages)
        self._accepted |= {each.id for each in messages}

    @rule(where=st.lists(st.integers(0, 1), min_size=1, max_size=4), at=st.integers(1, 25))
    def a_producer_dies(self, where: list[int], at: int) -> None:
        messages = self._new(where)
        killed = Death(at).kills(lambda: self._spool.put(messages), self._wire)
        (self._perhaps if killed else self._accepted).update(each.id for each in messages)
        self._new_processes()

    @rule()
    def take_in(self) -> None:
        self._intake.look()

    @rule(steps=st.integers(1, 4), asks=st.integers(0, 4), forgets=st.booleans())
    def a_launch_dies(self, steps: int, asks: int, forgets: bool) -> None:
        self._die(Death(steps, asks), forgets=forgets)

    @rule(steps=st.integers(1, 25), forgets=st.booleans())
    def a_launch_dies_before_it_asks_the_store(self, steps: int, forgets: bool) -> None:
        self._die(Death(steps), forgets=forgets)

    def _die(self, death: Death, *, forgets: bool) -> None:
        death.kills(self._intake.look, self._wire)
        self._new_processes()
        if forgets:
            self.all_that_is_ready_is_handled_and_forgotten_with_its_ids()

    @rule()
    def all_that_is_ready_is_handled_and_forgotten_with_its_ids(self) -> None:
        for queue in QUEUES:
            key = self._producer.keys.queue
            self._handled += [each.decode() for each in self._wire.command("LRANGE", key(queue, "ready"), 0, -1)]
            names = ["ready", "rows", "records", "id_memory", "id_memory_before", "ready_marker"]
            self._wire.command("DEL", *(key(queue, name) for name in names))
        assert len(self._handled) == len(set(self._handled)), "a second message"

    def teardown(self) -> None:
        self._intake.look()
        self.all_that_is_ready_is_handled_and_forgotten_with_its_ids()
        handled, state = set(self._handled), self._spool.state()
        shutil.rmtree(self._place)
        assert self._accepted <= handled <= self._accepted | self._perhaps
        assert state == (0, None, 0)


@pytest.mark.crossing
def test_each_spooled_message_becomes_one_message_whoever_dies_when(server: Server) -> None:
    machine = type("Machine", (SpoolMachine,), {"server": server})
    run_state_machine_as_test(machine, settings=settings(max_examples=100, stateful_step_count=12, deadline=None))


def test_each_step_is_on_disk_before_the_next_one(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, wire, steps = Spool(tmp_path, NAMESPACE), server.wire(), list[str]()
    intake = Intake(spool, Producer(wire, NAMESPACE), lambda _: None)

    def note(place: Any, name: str, step: Callable[[Any], str]) -> None:
        call = getattr(place, name)

        def do(*given: Any, **named: Any) -> Any:
            steps.append(step(given[0]))
            return call(*given, **named)

        monkeypatch.setattr(place, name, do)

    def synced(descriptor: int) -> str:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return "sync directory"
        return "sync ledger" if (tmp_path / f"{NAMESPACE}@lock").exists() else "sync file"

    note(os, "fsync", synced)
    note(os, "rename", lambda _: "rename")
    note(os, "unlink", lambda _: "remove")
    note(wire, "once", lambda _: "send")
    spool.put([message("a")])
    assert steps == ["sync file", "rename", "sync directory"]
    steps.clear()
    intake.look()
    assert steps[:4] == ["sync ledger", "rename", "sync directory", "send"]
    assert steps[-2:] == ["send", "remove"]
