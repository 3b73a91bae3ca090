"""What the trial of two versions finds."""

from __future__ import annotations

import random
import sys

import pytest

from tests.upgrade.drawn_messages import drawn
from tests.upgrade.trial import NEW, OLD, WAITING, Trial, shares


@pytest.mark.parametrize("count", [1, 7, 250, 1001])
def test_the_shares_of_producers_have_each_number_once(count: int) -> None:
    numbers = [n for share in shares("p", 5, count) for n in range(share.first, share.first + share.messages)]
    assert numbers == [*range(5, 5 + count)]


def test_a_unique_key_is_of_one_process_and_of_one_handler() -> None:
    owners: dict[str, set[tuple[int, str]]] = {}
    for process in (0, 1):
        for message in (drawn(random.Random(n), "a", n, process) for n in range(2000)):
            if key := message.options.get("key"):
                owners.setdefault(key, set()).add((process, message.handler))
    assert len(owners) > 1
    assert all(len(each) == 1 for each in owners.values())


@pytest.mark.long
def test_a_version_that_handles_what_only_a_newer_one_can_read_is_found() -> None:
    """Both are this one, which reads it."""
    trial = Trial({OLD: sys.executable, NEW: sys.executable}, 200, seed=1)
    wrong = ["the run itself ended with an error"]
    try:
        wrong = trial.run()
    finally:
        trial.close(keep=False)
    assert [line for line in wrong if not line.endswith("before a version came that can read it")] == []
    assert [line.split(" is ")[0] for line in wrong] == WAITING
