"""Descriptors that a handler may close, and what may not be closed in its turn."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from pollconsumer.runtime.handling.executors.descriptors import ProbeDescriptor

OPENING = """
import os
from pollconsumer.runtime.handling.executors.descriptors import Outputs
from pollconsumer.store.client.own_descriptors import above_standard

outputs = Outputs()
os.closerange(0, 3)
with above_standard():
    opened = os.pipe()
outputs.restore()
print(min(opened) > 2, os.fstat(0).st_rdev == os.stat(os.devnull).st_rdev)
"""


def test_what_we_open_while_the_standard_descriptors_are_closed_does_not_get_their_numbers() -> None:
    done = subprocess.run([sys.executable, "-c", OPENING], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_closing_a_sample_twice_closes_nothing_that_was_opened_in_between() -> None:
    sample = ProbeDescriptor()
    sample.close()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
    sample.close()
    for descriptor in opened:
        os.close(descriptor)


HIGH = """
import os, resource, sys
from pollconsumer.runtime.handling.executors.descriptors import Outputs

limit, low, high = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
outputs = Outputs()
os.closerange(low, high)
outputs.restore()
print("heard", flush=True)
"""


@pytest.mark.parametrize(
    ("limit", "low", "high"), [(20000, 0, 1024), (4096, 0, 1024), (20000, 3, 4096), (1024, 0, 1000), (96, 0, 64)]
)
def test_standard_output_returns_where_a_handler_closed_what_other_programs_have(
    limit: int, low: int, high: int
) -> None:
    if limit > resource.getrlimit(resource.RLIMIT_NOFILE)[1]:
        pytest.skip("the limit of open files is lower here")
    done = subprocess.run(
        [sys.executable, "-c", HIGH, *map(str, (limit, low, high))], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("heard\n", "")
