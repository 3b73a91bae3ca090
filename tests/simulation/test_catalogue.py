"""Every interleaving of small scenarios keeps the promises; and the exploration finds what breaks one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.actions import MessageActions
from tests.leaving_out import long
from tests.simulation.catalogue import CATALOGUE, a_redrive
from tests.simulation.exploring import Choices, explore

if TYPE_CHECKING:
    from tests.simulation.exploring import Scenario

LONG = ("a_batch_that_grows", "a_chain_whose_link_dies")
QUICK = (
    "a_follow_up",
    "messages_at_most_once",
    "a_recurrence_at_its_instant",
    "a_redrive",
    "a_unique_key_at_a_completion",
)


@pytest.mark.parametrize(
    "scenario",
    [long(each) if each.__name__ in LONG else each for each in CATALOGUE],
    ids=[each.__name__ for each in CATALOGUE],
)
def test_every_promise_holds_in_every_order_of_calls(scenario: Scenario) -> None:
    found = explore(scenario, faults=1 if scenario.__name__ in QUICK else 0)
    assert found.violations == []
    assert found.runs


def test_a_call_that_is_repeated_after_a_lost_reply_is_found_if_it_acts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def redrive(person: MessageActions, queue: str, ids: list[str]) -> list[str]:
        wire, script = person._wire, person._wire.scripts["redrive"]  # noqa: SLF001  less its guards
        keys = person._keys.names_for(script.keys, queue)[:-1]  # noqa: SLF001  the same
        return [each.decode() for each in wire.call(script, keys, [0, *(part for each in ids for part in (each, 255))])]

    monkeypatch.setattr(MessageActions, "redrive", redrive)
    (violations, story), *_ = explore(a_redrive, faults=1).violations
    assert violations == ["attempts_count_calls: m is in generation 2, and was redriven less often"]
    assert "person: redrive, carried out, its reply is lost" in story


def test_choices_enumerate_every_path_once() -> None:
    paths = []
    given: list[int] | None = []
    while given is not None:
        choices = Choices(given)
        path = [choices.among(2)]
        path.append(choices.among(3 if path[0] else 1))
        paths.append(path)
        given = choices.following()
    assert paths == [[0, 0], [1, 0], [1, 1], [1, 2]]
