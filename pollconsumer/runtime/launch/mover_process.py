"""A launch of the mover beside one of the consumer, for crontabs of one line: a process of its own, under a lease of
its own, so that no handler can hold it up."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PATIENCE = 5.0
"""Seconds in which the mover must have obeyed; it holds nothing that could be lost."""


@contextmanager
def companion(arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[None]:
    """Run ``pollconsumer ARGUMENTS`` until the block ends. What it prints goes where our output goes."""
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
