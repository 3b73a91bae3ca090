"""Spooled messages become one message each, whoever dies at which line, and whatever the store has forgotten."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from pollconsumer.runtime.spool import intake, spool
from pollconsumer.runtime.spool.intake import Intake
from pollconsumer.runtime.spool.spool import Spool
from pollconsumer.store.queues.producer import Producer
from tests.conftest import NAMESPACE
from tests.store.acting import message

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.client.connection import Command
    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server

QUEUES = ("mail", "web")
FILES = {spool.__file__, intake.__file__}


def descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/dev/fd")}  # noqa: PTH208  names alone


class Killed(BaseException):
    """The process is gone."""


class Death:
    """Kills once the store has passed so many ``asks``, before it acts or before it is heard, at a line of the spool's
    files."""

    def __init__(self, lines: int, asks: int = 0) -> None:
        self._lines, self._asks = lines, asks

    def line(self) -> None:
        if self._asks <= 0:
            self._lines -= 1
            if self._lines == 0:
                raise Killed

    def asked(self) -> None:
        self._asks -= 1
        self.line()

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            self.line()
        return self.trace

    def kills(self, act: Callable[[], object], wire: Wire) -> bool:
        """Whether ``act`` came to its death. A killed process runs no handler of exceptions: what those do here is at
        most what the kernel does, or the next process."""
        once = wire.once

        def asked(commands: list[Command], **options: Any) -> list[Any]:
            self.asked()
            answers = once(commands, **options)
            self.asked()
            return answers

        wire.once = asked  # type: ignore[method-assign, assignment]
        before, opened = sys.gettrace(), descriptors()
        sys.settrace(self.trace)
        try:
            act()
            return False
        except Killed:
            pass
        finally:
            sys.settrace(before)
            wire.once = once  # type: ignore[method-assign]
        for descriptor in descriptors() - opened:  # the kernel's part, which frees the lock
            with suppress(OSError):
                os.close(descriptor)
        return True


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

    @rule(where=st.lists(st.integers(0, 1), min_size=1, max_size=4), at=st.integers(1, 120))
    def a_producer_dies(self, where: list[int], at: int) -> None:
        messages = self._new(where)
        killed = Death(at).kills(lambda: self._spool.put(messages), self._wire)
        (self._perhaps if killed else self._accepted).update(each.id for each in messages)
        self._new_processes()

    @rule()
    def take_in(self) -> None:
        self._intake.look()

    @rule(lines=st.integers(1, 12), asks=st.integers(0, 8), forgets=st.booleans())
    def a_launch_dies(self, lines: int, asks: int, forgets: bool) -> None:
        self._die(Death(lines, asks), forgets=forgets)

    @rule(lines=st.integers(1, 150), forgets=st.booleans())
    def a_launch_dies_before_it_asks_the_store(self, lines: int, forgets: bool) -> None:
        self._die(Death(lines), forgets=forgets)

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


@pytest.mark.long  # minutes, since each death is traced line by line
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_each_spooled_message_becomes_one_message_whoever_dies_when(server: Server) -> None:
    machine = type("Machine", (SpoolMachine,), {"server": server})
    run_state_machine_as_test(machine, settings=settings(max_examples=30, stateful_step_count=10, deadline=None))
