"""Bytes of the server's memory per message beyond its payload of 180 bytes, pending and finished; with generated ids,
and with ids of the user's own of the same length."""

from __future__ import annotations

from benchmarks.place import Figure, enqueue_messages, handler, place, plain_wire, run, tcp_server
from pollconsumer.runtime.new_messages import new_message

MESSAGES = 10_000
"""As many finished ones as are kept."""
PAYLOAD = 180


def measure() -> list[Figure]:
    return [figure for own_ids in (False, True) for figure in _measured(own_ids=own_ids)]


def _measured(*, own_ids: bool) -> list[Figure]:
    with tcp_server() as url, place(url):
        wire = plain_wire(url)

        def used() -> int:
            """By all keys: the server's own sum counts the garbage of scripts and the buffers of clients, too."""
            names = wire.command("KEYS", "*")
            return sum(wire.all([("MEMORY", "USAGE", name, "SAMPLES", 0) for name in names]))

        run("run", "--until-empty")
        empty, plain = used(), handler("text")
        payload = {"text": "x" * (PAYLOAD - len('{"text":""}'))}
        if own_ids:
            enqueue_messages(new_message("text", payload, id=f"own-{n:024}") for n in range(MESSAGES))
        else:
            plain.enqueue_many([payload] * MESSAGES)
        pending = used() - empty
        run("run", "--until-empty")
        finished = used() - empty
    more = ", own ids" if own_ids else ""
    return [
        Figure(f"bytes, pending, beyond the payload{more}", pending / MESSAGES - PAYLOAD, "B"),
        Figure(f"bytes, finished, beyond the payload{more}", finished / MESSAGES - PAYLOAD, "B"),
    ]
