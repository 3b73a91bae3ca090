"""Process start → handler start with one message ready, against ``python -c "import redis"``, in turn."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.place import handler, notes, place, start, summary

ROUNDS = 21


def main() -> None:
    with place() as directory:
        note = handler("note")
        imports = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import redis"], check=True)
            imports.append((time.perf_counter() - began) * 1000)
            # The handler measures from this instant; the message is there before the process starts.
            note.enqueue(since=time.time())
            start("run", "--until-empty").wait()
        ours = notes(directory, ROUNDS)
        print(f"process start to handler start  {summary(ours)}")
        print(f"python -c 'import redis'        {summary(imports)}")
        print(f"ratio of medians                {statistics.median(ours) / statistics.median(imports):.2f}")


if __name__ == "__main__":
    main()
