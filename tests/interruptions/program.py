"""A producer whose calls are interrupted at random instants: ``program.py URL TIMES SEED``.

After each interruption another call must end rightly, within its patience. Prints how many interruptions of each kind
came about, and what surfaced. A call that hangs ends the process with the stacks of its threads.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import gc
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pollconsumer import BadData, NotFound, PollConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 20.0
HUNG_AFTER = 60.0
RAISING = ("raised", "raised, of the system's kind")
SELDOM = 0.02
"""Share of the kinds that take as long as many others."""


class Thrown(Exception):
    """What a signal handler, or another thread, raises in the midst of a call."""


class Late(TimeoutError):
    """The same, of a kind that the system raises, too."""


class Striker:
    """A thread that raises Thrown in another one, by the interpreter's interface for it. Without locks, which would be
    lost where it strikes within them."""

    def __init__(self) -> None:
        self._struck = ctypes.c_ulong(threading.get_ident())
        self.after: float | None = None
        """Seconds after which it strikes, once."""
        self._looks = False
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._looks = True
            if self.after is not None:
                time.sleep(self.after)
                if self.after is not None:
                    self.after = None
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(self._struck, ctypes.py_object(Thrown))
            self._looks = False
            time.sleep(5e-5)

    def rest(self) -> None:
        """Returns once nothing is on its way any more; raises what was."""
        self.after = None
        while self._looks:
            time.sleep(0)


class Trial:
    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self.app = self.new_app()
        self.drawn = random.Random(seed)
        self.seed = seed
        self.number, self.striker = 0, Striker()
        self.counts, self.surfaced = Counter[str](), Counter[str]()
        self.error: type[Exception] = Thrown
        self.raises = self.enters = self.armed = False
        self.entering = self.unraisable = False
        app = self.app

        @app.handler(queue="interrupted")
        def note(n: int) -> int:
            return n

        self.note = note
        self.last = note.enqueue(0)
        self.calls: dict[str, Callable[[], object]] = {
            "enqueue": lambda: note.enqueue(self.next()),
            "enqueue an id": lambda: app.enqueue("note", {"n": self.next()}, id=self.new_id()),
            "enqueue_many": lambda: note.enqueue_many([{"n": n} for n in range(3)]),
            "status": lambda: self.last.status(),
            "message": lambda: app.message(self.last.id),
            "messages": lambda: next(iter(app.messages(queue="interrupted")), None),
            "cancel": lambda: note.enqueue(self.next()).cancel(),
            "wait": lambda: self.last.wait(0.002),
            "put": lambda: app.recurrences.put("r", every="1h", handler="note", payload={"n": self.next()}),
            "get": lambda: app.recurrences.get("r"),
            "enqueue_async": lambda: asyncio.run(self.enqueue_async()),
        }
        app.recurrences.put("r", every="1h", handler="note", payload={"n": 0})
        self.lasts = dict.fromkeys(self.calls, 0.001)

    def new_app(self) -> PollConsumer:
        return PollConsumer(store=self.url, namespace="interrupted", patience=PATIENCE)

    def next(self) -> int:
        self.number += 1
        return self.number

    def new_id(self) -> str:
        return f"{self.seed}-{os.getpid()}-{self.next()}"

    async def enqueue_async(self) -> None:
        await self.note.enqueue_async(self.next())

    async def cancelled(self, after: float) -> bool:
        call = asyncio.ensure_future(self.enqueue_async())
        asyncio.get_running_loop().call_later(after, call.cancel)
        await asyncio.wait([call])
        return call.cancelled()

    def handle_signal(self, *_: object) -> None:
        if not self.armed:
            return
        self.armed = False
        if self.enters:
            self.enter()
        if self.raises:
            raise self.error

    def enter(self) -> None:
        """A call in the midst of another one of the same thread."""
        if self.entering:
            return
        self.entering = True
        try:
            self.check()
        finally:
            self.entering = False

    def check(self) -> None:
        began, number, wanted = time.monotonic(), self.next(), self.new_id()
        handle = self.app.enqueue("note", {"n": number}, id=wanted)
        assert (handle.id, handle.duplicate) == (wanted, False), handle
        message = handle.status()
        assert (message.id, message.payload) == (wanted, {"n": number}), message
        took = time.monotonic() - began
        assert took < PATIENCE, f"{took} s"

    def interrupt(self, kind: str) -> None:
        if kind == "logged":
            self.app, before = self.new_app(), self.app
            self.check()  # the first connection logs that the server evicts
            self.app = before
            return
        name, self.unraisable = self.drawn.choice([*self.calls]), False
        self.raises, self.enters = kind in RAISING, kind == "entered"
        self.error = Late if kind == "raised, of the system's kind" else Thrown
        if name == "enqueue_async" and kind in (*RAISING, "set by a thread"):
            kind = "cancelled"  # what is raised in its callbacks, asyncio does not survive
        after = max(2e-6, self.drawn.random() * 1.2 * self.lasts[name])
        began = time.monotonic()
        if kind == "cancelled":
            struck = asyncio.run(self.cancelled(after))
        elif kind == "set by a thread":
            struck = self.asynchronously(name, after)
        else:
            struck = self.by_signal(name, after, kind)
        if struck:
            self.counts[kind] += 1
        else:
            self.lasts[name] += (min(0.05, time.monotonic() - began) - self.lasts[name]) / 8
        self.check()

    def by_signal(self, name: str, after: float, kind: str) -> bool:
        if kind == "forked":
            signal.signal(signal.SIGALRM, self.fork)
        elif kind == "finalised":
            self.leave_cycle()
        else:
            signal.signal(signal.SIGALRM, self.handle_signal)
        try:
            try:
                self.armed = True
                if kind != "finalised":
                    signal.setitimer(signal.ITIMER_REAL, after)
                self.make(name)
            finally:
                struck, self.armed = not self.armed, False
        except (Thrown, Late) as error:
            self.surfaced[type(error).__name__] += 1
            self.armed = False
            return True
        if struck and self.raises and not self.unraisable:
            self.surfaced["swallowed"] += 1
        return struck

    def asynchronously(self, name: str, after: float) -> bool:
        """As pytest-timeout, and thread pools that cancel, do: by the interpreter's interface for it."""
        struck = False
        try:
            try:
                self.striker.after = after
                self.make(name)
            finally:
                self.striker.after = None
        except Thrown:
            struck = True
        while True:
            try:
                self.striker.rest()
                break
            except Thrown:  # it was still on its way
                struck = True
        self.surfaced["Thrown"] += struck
        return struck

    def make(self, name: str) -> None:
        with suppress(BadData, NotFound):
            try:
                self.calls[name]()
            except TimeoutError as error:  # of wait, as it should be
                if isinstance(error, Late) or name != "wait":
                    raise

    def note_unraisable(self, raised: Any) -> None:
        """What finalisers raise, and what is raised in them, the interpreter reports and goes on."""
        self.unraisable = True
        known = issubclass(raised.exc_type, Thrown | Late)
        self.surfaced["in a finaliser" if known else f"in a finaliser, {raised.exc_value!r}"] += 1

    def leave_cycle(self) -> None:
        """Something that the collector finds in the midst of the next call, whose finaliser makes one."""
        trial = self

        class Finalised:
            def __init__(self) -> None:
                self.itself = self

            def __del__(self) -> None:
                trial.armed = False
                trial.enter()

        gc.set_threshold(self.drawn.randrange(1, 60))
        Finalised()

    def fork(self, *_: object) -> None:
        if not self.armed:
            return
        self.armed = False
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.check()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Enqueueing(logging.Handler):
    """Enqueues each line that is logged."""

    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self._trial = trial

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002  each record is the same to it
        self._trial.counts["logged"] += 1
        self._trial.check()


def main(url: str, times: int, seed: int) -> None:
    sys.setswitchinterval(1e-5)
    trial = Trial(url, seed)
    logging.getLogger("pollconsumer").handlers = [Enqueueing(trial)]
    logging.getLogger("pollconsumer").propagate = False
    sys.unraisablehook = trial.note_unraisable
    for name in trial.calls:  # the first imports what it needs, and Python fails whoever calls again within an import
        trial.make(name)
    kinds = ["raised"] * 4 + [
        "raised, of the system's kind",
        "set by a thread",
        "set by a thread",
        "entered",
        "finalised",
    ]
    seldom = ["forked", "logged"]
    while sum(trial.counts.values()) < times:
        faulthandler.dump_traceback_later(HUNG_AFTER, exit=True)
        kind = trial.drawn.choice(seldom if trial.drawn.random() < SELDOM else kinds)
        trial.interrupt(kind)
        gc.set_threshold(700)
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"interrupted": trial.counts, "surfaced": trial.surfaced, "calls": trial.number}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
