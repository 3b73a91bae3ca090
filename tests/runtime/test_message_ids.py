"""Generated ids: no two alike, and in the order in which they were made, one by one and in runs."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.runtime.new_messages import new_id, new_ids


@given(st.lists(st.integers(0, 40), max_size=20))
def test_ids_made_one_by_one_and_in_runs_are_distinct(sizes: list[int]) -> None:
    ids = [each for size in sizes for each in ([new_id()] if size == 1 else new_ids(size))]
    assert len(ids) == sum(sizes) == len(set(ids))
    assert all(len(each) == 28 for each in ids)


def test_a_run_is_in_order() -> None:
    ids = new_ids(5_000)
    assert ids == sorted(ids)


def test_a_child_process_makes_other_ids_in_its_runs() -> None:
    before = new_ids(1_000)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, " ".join(new_ids(100)).encode())
        os._exit(0)
    os.close(writing)
    theirs: list[str] = b"".join(iter(lambda: os.read(reading, 4096), b"")).decode().split()
    os.close(reading)
    os.waitpid(child, 0)
    assert len({*before, *theirs, *new_ids(1_000)}) == 2_100
