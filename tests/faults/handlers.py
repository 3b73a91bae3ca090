"""The handlers of an installation under faults. Each execution appends a line when it starts and one when it ends."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollconsumer import Backoff, Context, Fatal, PollConsumer, RetryIn, Skip, Yield
from tests.faults.drawing import SKIP
from tests.faults.recording import append, digest, now

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

app, hooked_app = PollConsumer(), PollConsumer()
LOG = Path(__file__).with_name("executions.jsonl")
SOON = Backoff(first="50ms", factor=1, most="50ms", jitter=0)
MAX_ATTEMPTS = 4
PUT_OFF = 2
"""Failures of a message that is put off before."""


class PutOff(RetryIn):
    def __init__(self) -> None:
        super().__init__("10ms", charged=False)


@contextmanager
def executing(context: Context, payload: dict[str, Any], **more: Any) -> Iterator[dict[str, Any]]:
    """Append the lines of one execution. The block may add to what its end says."""
    token = uuid.uuid4().hex[:12]
    which = {"token": token, "id": context.id, "handler": context.handler, "queue": context.queue}
    numbers = {"attempt": context.attempt, "generation": context.generation, "fence": context.fence}
    append(LOG, which | numbers | more | {"at": now(), "what": "start", "pid": os.getpid(), "digest": digest(payload)})
    end: dict[str, Any] = {"token": token, "what": "end", "outcome": "ok"}
    try:
        yield end
    except BaseException as error:
        end["outcome"] = type(error).__name__
        raise
    finally:
        append(LOG, end | {"at": now()})


def behave(context: Context, ms: float, fails: int) -> None:
    """Take so long, and fail the first so many attempts; of some messages the first call is none."""
    time.sleep(ms / 1000)
    called = LOG.with_name(f"called-{context.id}")
    if fails == PUT_OFF and not called.exists():
        called.touch()
        raise PutOff
    if context.attempt <= fails:
        raise ValueError("no luck")


@app.handler(max_attempts=MAX_ATTEMPTS, retry=SOON)
def plain(context: Context, n: int, ms: float, fails: int, pad: str) -> None:
    with executing(context, {"n": n, "ms": ms, "fails": fails, "pad": pad}):
        behave(context, ms, fails)


@app.handler(max_attempts=MAX_ATTEMPTS, retry=SOON)
def latest(context: Context, n: int, ms: float, fails: int, pad: str) -> None:
    with executing(context, {"n": n, "ms": ms, "fails": fails, "pad": pad}):
        behave(context, ms, fails)


@hooked_app.before
def skip_if_told(context: Context) -> None:
    if SKIP in context.headers:
        raise Skip


@hooked_app.handler(max_attempts=MAX_ATTEMPTS, retry=SOON)
def hooked(context: Context, n: int, ms: float, fails: int, pad: str) -> None:
    with executing(context, {"n": n, "ms": ms, "fails": fails, "pad": pad}):
        behave(context, ms, fails)


@app.handler(max_attempts=MAX_ATTEMPTS, retry=SOON, queue="second")
def later(context: Context, n: int, ms: float, fails: int, pad: str) -> None:
    """As `plain`, and says when it wants to be tried again."""
    with executing(context, {"n": n, "ms": ms, "fails": fails, "pad": pad}):
        try:
            behave(context, ms, fails)
        except ValueError as error:
            if context.attempt == MAX_ATTEMPTS:
                raise
            raise RetryIn(0.1) from error


@app.handler(max_attempts=MAX_ATTEMPTS)
def hopeless(context: Context, n: int, ms: float, fails: int, pad: str) -> None:
    with executing(context, {"n": n, "ms": ms, "fails": fails, "pad": pad}):
        raise Fatal("no attempt can help")


@app.handler(delivery="at_most_once")
def once(context: Context, n: int, ms: float, fails: int, pad: str) -> None:
    with executing(context, {"n": n, "ms": ms, "fails": fails, "pad": pad}):
        behave(context, ms, fails)


@app.handler(max_attempts=MAX_ATTEMPTS, retry=SOON)
def parent(context: Context, n: int, ms: float, fails: int, pad: str) -> dict[str, int]:
    """Enqueues follow-ups whose ids no other execution gives, into both queues."""
    with executing(context, {"n": n, "ms": ms, "fails": fails, "pad": pad}) as end:
        payload = {"n": n, "ms": 0.0, "fails": 0, "pad": pad}
        token = uuid.uuid4().hex[:8]
        end["follow_ups"] = [
            {"id": f"{context.id}-{token}-{number}", "queue": queue, "handler": name, "digest": digest(payload)}
            for number, (name, queue) in enumerate([("plain", "default"), ("later", "second")])
        ]
        for each in end["follow_ups"]:
            context.enqueue(each["handler"], payload, id=each["id"], queue=each["queue"])
        behave(context, ms, fails)
        return {"n": n}


@app.handler(max_attempts=MAX_ATTEMPTS, retry=SOON)
def steps(context: Context, n: int, ms: float, fails: int, pad: str) -> None:
    """Four steps with a checkpoint after each; once, after the second, it yields, and after the third it sleeps."""
    done = (context.state or {"done": 0})["done"]
    with executing(context, {"n": n, "ms": ms, "fails": fails, "pad": pad}, found=done) as end:
        behave(context, ms, fails)
        end["given"] = {}
        for number in range(1, 5):
            end["given"][f"{number}"] = context.step(f"{number}", lambda: uuid.uuid4().hex)
            if number > done:
                context.checkpoint({"done": number})
                end["kept"] = number
                if number == 2:
                    raise Yield
            if number == 3:
                context.sleep("50ms")


@app.handler(max_attempts=MAX_ATTEMPTS, retry=SOON, isolation="process", timeout="20s")
def apart(context: Context, n: int, ms: float, fails: int, pad: str) -> None:
    with executing(context, {"n": n, "ms": ms, "fails": fails, "pad": pad}):
        behave(context, ms, fails)


@app.handler(max_attempts=MAX_ATTEMPTS, retry=SOON)
async def awaited(context: Context, n: int, ms: float, fails: int, pad: str) -> None:
    with executing(context, {"n": n, "ms": ms, "fails": fails, "pad": pad}):
        behave(context, ms, fails)


@app.every("1s", missed="all", max_attempts=MAX_ATTEMPTS, retry=SOON)
def each_second(context: Context, occurrence: datetime) -> None:
    with executing(context, {}, occurrence=int(occurrence.timestamp() * 1000)):
        pass


@app.every("1s", missed="once", overlap="skip", queue="second", max_attempts=MAX_ATTEMPTS, retry=SOON)
def some_seconds(context: Context, occurrence: datetime) -> None:
    with executing(context, {}, occurrence=int(occurrence.timestamp() * 1000)):
        time.sleep(0.05)


@app.every("10s", after="end", max_attempts=MAX_ATTEMPTS, retry=SOON)
def crawl(context: Context, occurrence: datetime) -> None:
    with executing(context, {}, occurrence=int(occurrence.timestamp() * 1000)):
        behave(context, 300.0, 1)
