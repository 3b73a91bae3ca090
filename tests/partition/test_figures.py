"""What a trial with hosts counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.partition.trial import longest_with_more, stale

if TYPE_CHECKING:
    from tests.partition.trial import Line


def handled(fence: int, begun: float, ended: float) -> list[Line]:
    line = {"id": f"{fence} {begun}", "fence": fence, "host": "h"}
    return [line | {"what": "begin", "at": begun}, line | {"what": "end", "at": ended}]


def in_order(*lines: list[Line]) -> list[Line]:
    return sorted((line for each in lines for line in each), key=lambda line: line["at"])


def test_a_launch_that_begins_under_a_fence_after_a_higher_one_of_its_place_is_stale() -> None:
    lines = in_order(handled(1, 0, 1), handled(2, 2, 3), handled(1, 4, 5))
    assert stale(lines, {1: "a", 2: "a"}) == 1
    assert stale(lines, {1: "a", 2: "b"}) == 0


@pytest.mark.parametrize(("instances", "longest"), [(1, 2.0), (2, 1.0), (3, 0.0)])
def test_launches_at_work_together_are_counted_for_as_long_as_they_are_too_many(instances: int, longest: float) -> None:
    lines = in_order(handled(1, 0, 3), handled(2, 1, 2.5), handled(3, 1.5, 4), handled(4, 5, 6), handled(4, 5.5, 6))
    lines += [{"id": "killed", "fence": 5, "host": "h", "what": "begin", "at": 7}]
    assert longest_with_more(lines, instances) == longest
