"""In which order queues are asked."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.runtime.session.exchange import Turns

WEIGHTS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 10), min_size=2)


def test_without_weights_the_order_never_changes() -> None:
    turns = Turns(["b", "a"])
    turns.served("b", 1000)
    assert list(turns.order()) == ["b", "a"]


@given(WEIGHTS, st.integers(1, 5))
def test_queues_with_a_backlog_are_served_in_proportion_to_their_weights(weights: dict[str, int], page: int) -> None:
    turns, served = Turns(sorted(weights), weights), Counter[str]()
    for _ in range(1000):
        queue = turns.order()[0]
        turns.served(queue, page)
        served[queue] += page
    queue_steps = {queue: served[queue] / weights[queue] for queue in weights}
    assert max(queue_steps.values()) - min(queue_steps.values()) <= 2 * page


@given(WEIGHTS, st.integers(1, 500))
def test_a_queue_that_was_empty_has_not_saved_up_turns(weights: dict[str, int], meanwhile: int) -> None:
    idle, *busy = sorted(weights)
    turns = Turns(sorted(weights), weights)
    for _ in range(meanwhile):
        turns.served(next(queue for queue in turns.order() if queue != idle), 1)
    in_a_row = 0
    while turns.order()[0] == idle:
        turns.served(idle, 1)
        in_a_row += 1
    assert in_a_row <= weights[idle] / min(weights[queue] for queue in busy) + 2


def test_a_queue_without_a_weight_counts_one() -> None:
    turns = Turns(["heavy", "plain"], {"heavy": 3})
    for _ in range(400):
        turns.served(turns.order()[0], 1)
    turns.served("plain", 1)
    assert list(turns.order()) == ["heavy", "plain"]
