"""Enqueue → handler start while a launch idles; the floor is a bare BLPOP in another process, in turn."""

from __future__ import annotations

import random
import subprocess
import sys
import time

from redis import Redis

from benchmarks.place import Figure, at, handler, notes, place, start, tcp_server

MESSAGES = 300
BARE = """
import sys, time
from redis import Redis
client = Redis.from_url(sys.argv[1])
while (popped := client.blpop("bare", 10)) and popped[1] != b"end":
    print((time.time() - float(popped[1])) * 1000, flush=True)
"""


def measure() -> list[Figure]:
    with tcp_server() as url, place(url) as directory:
        enqueue, client = handler("note").enqueue, Redis.from_url(url)
        consumer = start("run", "--timeout", "5m")
        bare = subprocess.Popen([sys.executable, "-c", BARE, url], stdout=subprocess.PIPE, text=True)
        enqueue(since=time.time())
        notes(directory, 1)
        for _ in range(MESSAGES):
            time.sleep(random.uniform(0.005, 0.03))
            enqueue(since=time.time())
            time.sleep(random.uniform(0.005, 0.03))
            client.rpush("bare", time.time())
        ours = notes(directory, MESSAGES + 1)[1:]
        client.rpush("bare", "end")
        output, _ = bare.communicate()
        consumer.terminate()
        consumer.wait()
    least = [float(line) for line in output.splitlines()]
    return [
        Figure(f"idle → handler, p{share * 100:.0f}", at(ours, share), "ms", at(least, share)) for share in (0.5, 0.99)
    ]
