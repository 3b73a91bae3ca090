"""Descriptors that a handler may close, and what may not be closed in its turn."""

from __future__ import annotations

import os

from pollconsumer.runtime.descriptors import Sample


def test_closing_a_sample_twice_closes_nothing_that_was_opened_in_between() -> None:
    sample = Sample()
    sample.close()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
    sample.close()
    for descriptor in opened:
        os.close(descriptor)
