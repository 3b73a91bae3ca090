"""Due time → ready, and → handler start, of messages due at random instants: ``run`` alone, and beside ``move``."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

from benchmarks.place import handler, notes, place, start, summary
from pollconsumer.interface.cli.opened import COMMAND_BUDGET
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.interface.store_opener import opener_of
from pollconsumer.store.inspector import Inspector
from pollconsumer.store.patience import Budget

MESSAGES = 300
SPREAD = 20.0
LEAD = 3.0


def main() -> None:
    for commands in (["run"], ["move", "run"]):
        measure(commands)


def measure(commands: list[str]) -> None:
    with place() as directory:
        processes = [start(command, "--timeout", "60s") for command in commands]
        begin = time.time() + LEAD
        note = handler("note")
        dues = [begin + random.uniform(0, SPREAD) for _ in range(MESSAGES)]
        sent = [
            note.using(at=datetime.fromtimestamp(due, UTC)).enqueue(since=due) for due in random.sample(dues, len(dues))
        ]
        started = notes(directory, MESSAGES)
        for process in processes:
            process.terminate()
            process.wait()
        settings = load_settings()
        opener = opener_of(settings)
        inspector = Inspector(opener.wire(lambda: Budget(COMMAND_BUDGET)), settings.namespace)
        late = []
        for entry in sent:
            times = inspector.message(entry.id).row.timestamps
            assert times.enqueued_at is not None
            assert times.due_at is not None
            late.append(float(times.enqueued_at - times.due_at))
        print(" and ".join(commands))
        print(f"due to ready, server's clock   {summary(late)}")
        print(f"due to handler start           {summary(started)}")
        print(f"early: {sum(value < 0 for value in late)}")


if __name__ == "__main__":
    main()
