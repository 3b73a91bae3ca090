"""Bytes of the server's memory per message with a payload of 180 bytes: pending, and finished without the payload."""

from __future__ import annotations

from benchmarks.place import Figure, handler, place, plain_wire, run, tcp_server

MESSAGES = 10_000
"""As many finished ones as are kept."""
PAYLOAD = 180


def measure() -> list[Figure]:
    with tcp_server() as url, place(url):
        wire = plain_wire(url)

        def used() -> int:
            """By all keys: the server's own sum counts the garbage of scripts and the buffers of clients, too."""
            names = wire.command("KEYS", "*")
            return sum(wire.all([("MEMORY", "USAGE", name, "SAMPLES", 0) for name in names]))

        run("run", "--until-empty")
        empty, plain = used(), handler("text")
        padding = "x" * (PAYLOAD - len('{"text":""}'))
        plain.enqueue_many([{"text": padding}] * MESSAGES)
        pending = used() - empty
        run("run", "--until-empty")
        finished = used() - empty
    return [
        Figure("bytes, pending", pending / MESSAGES, "B", PAYLOAD),
        Figure("bytes, finished, beyond the payload", finished / MESSAGES - PAYLOAD, "B"),
    ]
