"""Generated ids: no two alike, and in the order in which they were made."""

from __future__ import annotations

import os

from pollconsumer.store.queues.producer import new_id


def test_ids_are_distinct_and_in_order() -> None:
    ids = [new_id() for _ in range(5_000)]
    assert len(set(ids)) == 5_000
    assert {len(each) for each in ids} == {28}
    assert ids == sorted(ids)


def test_a_child_process_makes_other_ids() -> None:
    before = [new_id() for _ in range(1_000)]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, " ".join(new_id() for _ in range(100)).encode())
        os._exit(0)
    os.close(writing)
    theirs: list[str] = b"".join(iter(lambda: os.read(reading, 4096), b"")).decode().split()
    os.close(reading)
    os.waitpid(child, 0)
    assert len({*before, *theirs, *(new_id() for _ in range(1_000))}) == 2_100
