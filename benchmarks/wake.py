"""Enqueue → handler start while the consumer idles, against a bare BLPOP in another process in the same run."""

from __future__ import annotations

import random
import subprocess
import sys
import time

from benchmarks.place import handler, notes, place, start, summary

MESSAGES = 500
BARE = """
import sys, time
from redis import Redis
client = Redis(unix_socket_path=sys.argv[1])
while (popped := client.blpop("bare", 10)) and popped[1] != b"end":
    print((time.time() - float(popped[1])) * 1000, flush=True)
"""


def main() -> None:
    with place() as directory:
        enqueue = handler("note").enqueue
        consumer = start("run", "--timeout", "60s")
        enqueue(since=time.time())
        notes(directory, 1)
        for _ in range(MESSAGES):
            time.sleep(random.uniform(0.002, 0.02))
            enqueue(since=time.time())
        ours = notes(directory, MESSAGES + 1)[1:]
        consumer.terminate()
        consumer.wait()
        bare = _bare()
        print(f"pollconsumer  {summary(ours)}")
        print(f"bare BLPOP    {summary(bare)}")
        middle = MESSAGES // 2
        print(f"ratio of p50  {sorted(ours)[middle] / sorted(bare)[middle]:.2f}")


def _bare() -> list[float]:
    from redis import Redis

    from pollconsumer.runtime.embedded.server import EmbeddedServer
    from pollconsumer.runtime.own_files import data_directory

    socket = str(EmbeddedServer(data_directory()).socket)
    client = Redis(unix_socket_path=socket)
    process = subprocess.Popen([sys.executable, "-c", BARE, socket], stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    for _ in range(MESSAGES):
        time.sleep(random.uniform(0.002, 0.02))
        client.rpush("bare", time.time())
    client.rpush("bare", "end")
    output, _ = process.communicate()
    client.close()
    return [float(line) for line in output.splitlines()]


if __name__ == "__main__":
    main()
