"""The program of a process of isolated handlers, which a launch starts by this file's path. Its arguments are the
numbers of two inherited descriptors: the connection to the launch, and the lifeline, a pipe that closes when the launch
dies. ``runtime/children/pool.py`` is the other side.

Until the process has received the launch's sys.path, it imports only the standard library."""

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
"""F_SETSIG, which only Linux has. On other systems a thread notices that the connection is closed."""


def hold(lifeline: int) -> None:
    """Let the system kill this process's group when the launch dies. Then the pipe ``lifeline`` becomes readable, which
    the system reports to the group by SIGKILL. Even a handler that holds the GIL cannot delay that.

    PR_SET_PDEATHSIG would kill only this process, not its children."""
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
        # A platform may signal every process, but the launch decides what to do. Children would inherit an ignored
        # signal.
        signal.signal(number, lambda *_: None)
    hold(lifeline)
    os.set_inheritable(connection, False)
    launch = socket.socket(fileno=connection)
    with launch.makefile("rb") as file:  # the launch sends nothing else before the answer
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
        # An open file causes a warning, which a handler may have made an error. A handler may also have closed its
        # descriptor.
        with suppress(OSError):
            launch.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
