"""Messages of 10 ms in 16 slots, on threads and as coroutines, server and launch on one core; the floor is what the
slots allow."""

from __future__ import annotations

from benchmarks.place import Figure, handler, marks, place, plain_wire, run, server_seconds, share_one_core, tcp_server

MESSAGES, SLOTS, SECONDS = 3_200, 16, 0.01


def measure() -> list[Figure]:
    share_one_core()
    figures = []
    with tcp_server() as url, place(url) as directory:
        wire = plain_wire(url)
        for name, title in (("sleep", "16 slots, threads"), ("asleep", "16 slots, async")):
            handler(name).enqueue_many([{"n": n, "seconds": SECONDS} for n in [*range(MESSAGES - 1), -1]])
            before = server_seconds(wire)
            run("run", "--until-empty", "--concurrency", str(SLOTS))
            seconds, cpu = marks(directory)
            figures.append(Figure(title, MESSAGES / (seconds + SECONDS), "/s", SLOTS / SECONDS))
            figures.append(Figure(f"{title}, client", cpu / MESSAGES * 1e6, "µs"))
            server = (server_seconds(wire) - before) / MESSAGES * 1e6
            figures.append(Figure(f"{title}, server", server, "µs"))
    return figures
