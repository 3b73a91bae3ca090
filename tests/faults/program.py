"""The program that an installation under faults runs as a handler: it records its executions as `handlers` does."""

import hashlib
import json
import os
import sys
import time

given = sys.stdin.read()
payload = json.loads(given)
of = {name: os.environ[f"POLLCONSUMER_{name.upper()}"] for name in ("handler", "queue")}
numbers = {name: int(os.environ[f"POLLCONSUMER_{name.upper()}"]) for name in ("attempt", "generation", "fence")}
token = os.urandom(6).hex()
log = os.path.join(os.path.dirname(os.path.abspath(__file__)), "executions.jsonl")  # noqa: PTH100,PTH118,PTH120  as few imports as can be
descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def append(entry: dict[str, object]) -> None:
    os.write(descriptor, json.dumps(entry | {"token": token, "at": time.time_ns() // 1000}).encode() + b"\n")


digest = hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:16]
identity = {"id": os.environ["POLLCONSUMER_MESSAGE_ID"], "pid": os.getpid(), "digest": digest}
append({"what": "start"} | identity | of | numbers)
time.sleep(payload["ms"] / 1000)
fails = numbers["attempt"] <= payload["fails"]
append({"what": "end", "outcome": "exit 3" if fails else "ok"})
sys.exit(3 if fails else 0)
