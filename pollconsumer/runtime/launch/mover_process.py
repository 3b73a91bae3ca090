"""A mover's launch next to a consumer's, for crontabs of one line: a separate process with a separate lease, which no
handler can block."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

PATIENCE = 5.0
"""Seconds for the mover to exit after SIGTERM; it holds nothing that could be lost."""


@contextmanager
def companion(arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[None]:
    """Run ``pollconsumer ARGUMENTS`` until the block ends, with our standard output and error."""
    import subprocess

    command = [sys.executable, "-m", "pollconsumer", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, **environment})
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
