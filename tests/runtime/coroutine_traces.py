"""Coroutines that do what handlers may do, and note what they see."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.runtime.handling.handler import Handler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ACTS = (
    "nothing", "sleep 0", "sleep", "task", "task and sleep", "soon", "later", "generator", "timeout", "time out",
    "group", "thread", "context", "raise", "cancel",
)  # fmt: skip
number: ContextVar[int] = ContextVar("number", default=-1)


def of(timeout: float | None) -> Handler:
    return Handler("it", lambda *_: None, timeout=timeout, asynchronous=True)


class Trace:
    """What coroutines saw and did, in order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.kept: list[Any] = []

    async def handle(self, n: int, acts: list[str]) -> int:
        number.set(n)
        self.note(n, "begins")
        for act in acts:
            await self.act(n, act)
            self.note(n, act)
        return n

    def note(self, *what: Any) -> None:
        loop = asyncio._get_running_loop()  # noqa: SLF001  raises nothing
        current = asyncio.current_task(loop) if loop is not None else None
        self.seen.append((*what, loop is not None and loop.is_running(), current is not None, number.get()))

    async def act(self, n: int, act: str) -> None:
        loop = asyncio.get_running_loop()
        if act == "sleep 0":
            await asyncio.sleep(0)
        elif act == "sleep":
            await asyncio.sleep(0.001)
        elif act.startswith("task"):
            self.kept.append(loop.create_task(self.child(n)))
            if act != "task":
                await asyncio.sleep(0)
        elif act == "soon":
            loop.call_soon(self.note, n, "was called soon")
        elif act == "later":
            loop.call_later(0, self.note, n, "was called later")
        elif act == "generator":
            numbers = self.numbers()
            self.seen.append(await anext(numbers))
            self.kept.append(numbers)
        elif act == "timeout":
            async with asyncio.timeout(10):
                self.note(n, "within a timeout")
        elif act == "time out":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await asyncio.sleep(10)
        elif act == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(self.child(n))
        elif act == "thread":
            thread = threading.Thread(target=loop.call_soon_threadsafe, args=(self.note, n, "called by a thread"))
            thread.start()
            thread.join()
        elif act == "context":
            number.set(n + 100)
        elif act == "raise":
            raise ValueError(n)
        elif act == "cancel":
            raise asyncio.CancelledError

    async def child(self, n: int) -> None:
        self.note(n, "child begins")
        await asyncio.sleep(0)
        self.note(n, "child ends")

    async def numbers(self) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            self.seen.append("generator closed")
