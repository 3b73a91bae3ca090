"""The program of a process of isolated handlers. It is started by its path, with the numbers of two inherited
descriptors: the connection to its launch, and its lifeline. ``runtime/children/pool.py`` is the other side.

Until it has received the launch's sys.path, it imports only the standard library.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module

SET_SIGNAL = 10
"""F_SETSIG on Linux; elsewhere the connection's end is noticed by a thread."""


def hold(lifeline: int) -> None:
    """Have the system kill this process's group when the launch dies: the end of the pipe counts as readable, which the
    group is notified of by SIGKILL. Not even a handler that holds the GIL can delay that.

    PR_SET_PDEATHSIG would kill this process alone, and leave its children.
    """
    os.set_inheritable(lifeline, False)
    if not sys.platform.startswith("linux"):
        return
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, SET_SIGNAL, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # the launch died before
        os.killpg(0, signal.SIGKILL)


def main(connection: int, lifeline: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A platform may signal every process; the launch decides. An ignored signal would be inherited.
        signal.signal(number, lambda *_: None)
    hold(lifeline)
    os.set_inheritable(connection, False)
    launch = socket.socket(fileno=connection)
    with launch.makefile("rb") as file:  # the launch sends nothing more before the answer
        line = file.readline()
    if not line.endswith(b"\n"):  # it died
        return
    introduction = json.loads(line)
    for name in introduction["shadowed"]:
        import_module(name)
    sys.path[:] = introduction["path"]
    from pollconsumer.interface.assembly.child import serve

    try:
        serve(launch, introduction)
    finally:
        # Left open, it is a warning, which a handler may have made an error. One may have closed its descriptor, too.
        with suppress(OSError):
            launch.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
