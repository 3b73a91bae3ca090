"""Every instant that the API gives is an aware datetime: no public attribute of any object is a number of
milliseconds."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from pollconsumer import Context, PollConsumer, audit
from pollconsumer.testing import Sandbox
from tests.interface.api_page import BETWEEN_PACKAGES, GIVEN

if TYPE_CHECKING:
    from collections.abc import Iterator

START = datetime(2030, 1, 31, 9, tzinfo=UTC)
SMALLEST = 10**9
"""The seconds since the epoch of 2001: no count, size or duration of the objects below is so large."""
HIDDEN = {kind: BETWEEN_PACKAGES.get(name, set()) for name, kind in GIVEN.items()}
FORWARD = timedelta(days=400)


def of(kind: type) -> str:
    return next((name for name, each in GIVEN.items() if each is kind), kind.__name__)


def instants(found: Any, path: str, seen: set[type]) -> Iterator[tuple[str, object]]:
    """The numbers and datetimes in public attributes of ``found``, and of what these are."""
    if isinstance(found, datetime) or (isinstance(found, int | float) and not isinstance(found, Enum | bool)):
        yield path, found
    elif isinstance(found, dict):
        for key, value in found.items():
            yield from instants(value, f"{path}[{key!r}]", seen)
    elif isinstance(found, list) or type(found) is tuple:
        for at, value in enumerate(found):
            yield from instants(value, f"{path}[{at}]", seen)
    elif type(found).__module__.startswith("pollconsumer.") and not isinstance(found, Enum):
        seen.add(type(found))
        for name in [*dir(type(found)), *getattr(found, "__dict__", {})]:
            member = inspect.getattr_static(type(found), name, None)
            if name.startswith("_") or name in HIDDEN.get(type(found), ()) or inspect.isroutine(member):
                continue
            yield from instants(getattr(found, name), f"{path}.{name}", seen)


def objects(sandbox: Sandbox, app: PollConsumer) -> dict[str, object]:
    """Objects of each kind that the API gives, with as many instants as they may have."""
    found: dict[str, object] = {}

    @app.handler
    def work(context: Context) -> None:
        context.progress(1, 2)
        found["context.previous"] = context.previous

    @app.handler(max_attempts=1)
    def fail() -> None:
        raise ValueError("no")

    app.recurrences.put("r", every="1h", handler="work", until=sandbox.now + FORWARD, times=9)
    with app.batch("b", ended=work.args(), expires="9d") as batch:
        batch.add(work.args())
        batch.add(fail.args())
    message = work.using(expires="9h").enqueue()
    sandbox.run_for("3h")
    ended = app.batches.get("b").status()
    dead = next(iter(app.messages(state="dead")))
    with audit.acting_as("ada"):
        dead.redrive()
    waiting = work.using(in_="1h").enqueue()
    found |= {
        "handle.status()": message.status(),
        "scheduled": waiting.status(),
        "dead": dead.listed,
        "handle.progress": message.progress,
        "app.batches.get(…).status()": ended,
        "app.recurrences.get(…)": app.recurrences.get("r"),
        "app.recurrences.history(…)": app.recurrences.history("r"),
        "audit.interventions": audit.interventions(app),
    }
    return found


def test_no_public_attribute_is_a_number_of_milliseconds(sandbox: Sandbox, app: PollConsumer) -> None:
    seen: set[type] = set()
    found = [each for name, given in objects(sandbox, app).items() for each in instants(given, name, seen)]
    assert not [path for path, value in found if isinstance(value, int | float) and abs(value) >= SMALLEST]
    moments = {path: value for path, value in found if isinstance(value, datetime)}
    assert all(moment.utcoffset() is not None for moment in moments.values())
    assert {
        *("handle.status().timestamps.completed_at", "handle.status().expires_at", "handle.progress.at"),
        *("app.batches.get(…).status().created_at", "app.batches.get(…).status().ended_at"),
        *("app.batches.get(…).status().expires_at", "app.recurrences.get(…).next"),
        *("app.recurrences.get(…).recurrence.until", "app.recurrences.get(…).recurrence.created"),
        *("app.recurrences.get(…).previous.completed", "app.recurrences.history(…)[0].instant"),
        *("audit.interventions[0].at", "context.previous.instant"),
    } <= moments.keys()
    asked = {"handle.status()", "app.batches.get(…).status()", "app.recurrences.get(…)", "app.recurrences.history(…)"}
    assert asked <= {of(kind) for kind in seen}
