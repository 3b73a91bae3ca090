"""Descriptors that a handler may close, and what may not be closed in its turn."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

OPENING = """
import os
from pollconsumer.store.client.own_descriptors import above_standard

output = os.dup(1)
os.closerange(0, 3)
with above_standard():
    opened = os.pipe()
os.write(output, str(min(opened) > 2).encode())
"""


def test_what_we_open_while_the_standard_descriptors_are_closed_does_not_get_their_numbers() -> None:
    done = subprocess.run([sys.executable, "-c", OPENING], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True", "")


HIGH = """
import os, resource, sys
from pollconsumer.runtime.system import standard_error

limit, low, high = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
standard_error.remember()
os.closerange(low, high)
standard_error.write(b"heard")
"""


@pytest.mark.parametrize(
    ("limit", "low", "high"), [(20000, 0, 1024), (4096, 0, 1024), (20000, 3, 4096), (1024, 0, 1000), (96, 0, 64)]
)
def test_our_lines_are_printed_where_a_handler_closed_what_other_programs_have(limit: int, low: int, high: int) -> None:
    if limit > resource.getrlimit(resource.RLIMIT_NOFILE)[1]:
        pytest.skip("the limit of open files is lower here")
    done = subprocess.run(
        [sys.executable, "-c", HIGH, *map(str, (limit, low, high))], capture_output=True, text=True, check=False
    )
    assert done.stderr == "heard"
