"""What a launch works on beyond its window, in words, and as it stands in the ledger."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pollconsumer.core.coverage import WorkBeyond, read_work, working_on

NOON = round(datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp() * 1000)
MINUTE, DAY = 60_000, 86_400_000


def of(*handlers: str, since: int = NOON) -> list[WorkBeyond]:
    return [
        WorkBeyond(handler, "default", str(n), since + n * 1000, since + (5 + n) * MINUTE)
        for n, handler in enumerate(handlers)
    ]


@pytest.mark.parametrize(
    ("found", "now", "said"),
    [
        (of("render"), NOON, "render since 12:00:00, at most until 12:05:00"),
        (of("render", "mail", "render"), NOON, "render, mail since 12:00:00, at most until 12:07:00"),
        (of(*"abc"), NOON, "a, b, c since 12:00:00, at most until 12:07:00"),
        (of(*"abcde"), NOON, "a, b, c and 2 others since 12:00:00, at most until 12:09:00"),
        (of("a", since=NOON - DAY), NOON, "a since 2026-11-28 12:00:00, at most until 2026-11-28 12:05:00"),
    ],
)
def test_what_a_launch_works_on_is_one_line(found: list[WorkBeyond], now: int, said: str) -> None:
    assert working_on(found, now, utc=True) == f"working on {said}"


def test_its_names_are_those_of_json_and_its_times_instants() -> None:
    assert of("render")[0].as_json() == {
        "handler": "render", "queue": "default", "id": "0",
        "since": "2026-11-29T12:00:00.000Z", "until": "2026-11-29T12:05:00.000Z",
    }  # fmt: skip


@pytest.mark.parametrize(
    "corrupt",
    [
        None,
        7,
        "text",
        {"a": 1},
        [7],
        ["abcde"],
        *([[*fields]] for fields in (("a", "b", "c", 1), ("a", "b", "c", 1, 2, 3), ("a", "b", 1, 2, 3))),
        *([["a", "b", "c", *times]] for times in ((1, True), (1.5, 2), (-1, 2), (None, 2))),
    ],
)
def test_what_is_corrupt_is_left_out(corrupt: object) -> None:
    assert read_work(corrupt) == []
    sound = ["render", "default", "a", 1, 10**30]
    if isinstance(corrupt, list):
        (found,) = read_work([*corrupt, sound])
        assert found == WorkBeyond(*sound)  # type: ignore[arg-type]
        assert working_on([found], NOON).endswith(":59")
