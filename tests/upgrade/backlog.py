"""Many messages, enqueued by one command of either version, and recorded as those of a producer are."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from tests.faults.recording import now
from tests.upgrade.drawn_messages import Drawn, drawn

if TYPE_CHECKING:
    from tests.trials.place import Place

SOURCE = "backlog"


def enqueue_backlog(place: Place, chance: random.Random, count: int) -> None:
    """One queue after the other, which is quickest."""
    messages = sorted((drawn(chance, SOURCE, number) for number in range(count)), key=lambda each: each.queue)
    file = place.directory / "backlog.ndjson"
    file.write_text("".join(json.dumps(_line(each)) + "\n" for each in messages))
    invoked = now()
    ran = place.run("-q", "enqueue", "--ndjson", str(file), "--json", within=600)
    assert ran.code == 0, ran.errors
    answered = now()
    with (place.directory / f"operations.{SOURCE}.jsonl").open("w") as log:
        for message, said in zip(messages, ran.output.splitlines(), strict=True):
            holder = json.loads(said)["id"]
            outcome = {"outcome": "ok"} if holder == message.id else {"outcome": "duplicate", "holder": holder}
            which = {"token": message.id, "what": "enqueue", "queue": message.queue, "id": message.id}
            log.write(
                json.dumps(which | {"invoked": invoked, "answered": answered} | message.recorded | outcome) + "\n"
            )


def _line(message: Drawn) -> dict[str, Any]:
    """As `enqueue --ndjson` takes it."""
    options = {name.rstrip("_"): value for name, value in message.options.items()}
    where = {"id": message.id, "queue": message.queue, "handler": message.handler, "payload": message.payload}
    return where | options
