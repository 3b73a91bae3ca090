"""What is demanded of launches while the clock is set fails where it is not so."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.clock.judging import judge
from tests.clock.stepped import EVERY, LAUNCHES, NAMES, RATED, WINDOW, Seen, Step

WALL = 1_700_000_000.0
FIRST, SECOND, ENDS = 1.5 * WINDOW, 3.5 * WINDOW, 6 * WINDOW


def seen(seconds: float = 3600.0, **other: Any) -> Seen:
    """All as it should be, after a step of so many seconds under a launch, and back."""
    sets = [(FIRST, seconds), (SECOND, 0.0)]
    begun = [(f"rated-{number}", 1.0 + 5 * number) for number in range(RATED)]
    begun += [("soon", 31.0)] + [("tomorrow", FIRST + 1)] * (seconds > 86400.0)
    for tenth in range(int(10 * ENDS)):
        at = tenth / 10
        instant = (WALL + at + (seconds if FIRST <= at < SECOND else 0.0)) // EVERY * EVERY
        shown = datetime.fromtimestamp(instant, UTC).isoformat().replace("+00:00", "Z")
        if f"{NAMES[0]}@{shown}" not in dict(begun):
            begun += [(f"{name}@{shown}", at + 0.01) for name in NAMES]
    found: list[set[str]] = [{"clock_set_back"} if each else set() for each in (seconds < -10, seconds > 10)]
    skipped = {name: {"skipped": max(0, int(abs(seconds) / EVERY))} for name in NAMES}
    ledger: list[dict[str, Any]] = [{"running_seconds": WINDOW, "stop_reason": "no_time_to_idle"}] * (2 * LAUNCHES + 1)
    completed: list[dict[str, Any]] = [
        {
            "id": each,
            "durations": {"handled_seconds": 0.3},
            "timestamps": {"reserved_at": datetime.fromtimestamp(WALL + at, UTC).isoformat()},
        }
        for each, at in [*begun, ("rated-8", 1.1), ("rated-9", 1.2)]
        if each.startswith("rated")
    ]
    step = Step(seconds, under=True, alone=False)
    return Seen(
        step, begun, sets, 0.0, ENDS, WALL, skipped, ledger, completed, found, [], [0] * (2 * LAUNCHES + 1)
    )._replace(**other)


@pytest.mark.parametrize("seconds", [1.0, -1.0, 3600.0, -3600.0, 172_800.0, -172_800.0])
def test_what_goes_on_as_it_should_breaks_no_promise(seconds: float) -> None:
    assert judge(seen(seconds)) == []


def test_what_a_clock_of_two_days_has_the_store_forget_is_not_demanded() -> None:
    assert judge(seen(172_800.0, completed=seen().completed[3:])) == []


RIGHT = seen()
NAME = NAMES[0]
OF_ONE = [each for each in RIGHT.begun if each[0].startswith(NAME)]


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ("twice", {"begun": [*RIGHT.begun, OF_ONE[3]]}),
        ("before the server's clock", {"begun": [(each, at - 10 * (at > FIRST)) for each, at in RIGHT.begun]}),
        (
            "caught up",
            {"begun": [*RIGHT.begun, *((f"{NAME}@2023-11-14T22:{n:02}:00Z", FIRST + 1) for n in range(14, 60))]},
        ),
        ("are said to be skipped", {"recurrences": {name: {"skipped": 0} for name in NAMES}}),
        ("no clock was set", {"begun": [each for each in RIGHT.begun if each[1] < FIRST or "all" not in each[0]]}),
        ("messages with a rate were handed out within", {"begun": [*RIGHT.begun, ("rated-8", 1.1), ("rated-9", 1.2)]}),
        ("of 8 messages with a rate", {"begun": [each for each in RIGHT.begun if each[0] != "rated-5"]}),
        ("are not listed", {"completed": RIGHT.completed[1:]}),
        ("due soon", {"begun": [each for each in RIGHT.begun if each[0] != "soon"]}),
        ("due tomorrow", {"begun": [*RIGHT.begun, ("tomorrow", FIRST + 1)]}),
        ("the ledger has 12", {"ledger": RIGHT.ledger[1:]}),
        ("the ledger has {", {"ledger": [*RIGHT.ledger[1:], {"running_seconds": 3606.0, "stop_reason": "x"}]}),
        (
            "is said to have lasted",
            {"completed": [*RIGHT.completed, {**RIGHT.completed[0], "durations": {"handled_seconds": 3600.3}}]},
        ),
        ("launches ended", {"codes": [0, 124]}),
        ("printed", {"printed": ["pollconsumer: error: no"]}),
        ("doctor says nothing", {"found": [set(), set()]}),
    ],
)
def test_what_is_wrong_is_told(told: str, wrong: dict[str, Any]) -> None:
    problems = judge(RIGHT._replace(**wrong))
    assert any(told in problem for problem in problems), problems
