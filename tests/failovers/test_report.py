"""What a trial of failovers takes for a broken promise."""

from __future__ import annotations

from tests.failovers.report import Span, fences_of_two, is_around, pauses, stale_kept, untold
from tests.trials.recording import Accepted, Executed


def call(message: str, fence: int, launch: str = "one") -> Executed:
    return Executed(message, 0.0, 0.0, 1, fence, launch)


def test_a_fence_that_two_launches_used_is_one() -> None:
    calls = [call("a", 1), call("b", 1), call("c", 2, "two")]
    assert not [*fences_of_two(calls)]
    assert [*fences_of_two([*calls, call("d", 2, "three")])] == ["fence 2 was used by 2 launches"]


def test_a_completion_under_a_fence_that_the_store_has_superseded_is_one() -> None:
    calls = [call("a", 1), call("a", 2), call("b", 1), call("b", 3)]
    granted = {1, 2}  # the third was granted by a primary that was cut off, to which nobody listens any more
    assert not [*stale_kept({"a": 2, "b": 1}, calls, granted)]
    assert [*stale_kept({"a": 1, "b": 1}, calls, granted)] == [
        "the completion of a under fence 1 was kept, after one under 2"
    ]


def test_a_loss_of_which_the_producer_that_was_cut_off_was_not_told_is_one() -> None:
    span = Span(since=1.0, until=9.0, cut=2)
    lost = [Accepted("a", 5.0, 5.0, 0, place=2)]
    assert [*untold([span], lost)] == ["1 messages were lost by a producer that was cut off and was not told, as a"]
    assert not [*untold([span._replace(told=True)], lost)]
    assert not [*untold([span], [lost[0]._replace(place=1)])]


def test_a_pause_is_the_longest_gap_that_overlaps_its_failover() -> None:
    instants = [Accepted("a", at, at, 0) for at in (1.0, 1.0, 2.0, 5.0, 5.0, 6.0, 16.0)]
    spans = [Span(since=2.5, until=4.0), Span(since=5.5, until=5.8), Span(since=17.0, until=18.0)]
    assert [*pauses(spans, instants, of_each_place=True)] == [3.0, 1.0, 0.0]
    others = [Accepted("b", at, at, 0, place=1) for at in (1.5, 3.0, 4.5, 15.5)]
    assert [*pauses(spans, [*instants, *others], of_each_place=True)] == [3.0, 11.0, 0.0]
    assert [*pauses(spans, [*instants, *others], of_each_place=False)] == [1.5, 1.0, 0.0]
    cut = [span._replace(cut=1) for span in spans]
    assert [*pauses(cut, [*instants, *others], of_each_place=True)] == [3.0, 1.0, 0.0]


def test_a_message_may_be_handled_twice_from_shortly_before_a_failover_until_a_lapsed_lease_is_taken() -> None:
    span = Span(since=100.0, until=105.0)
    assert [is_around(span, at) for at in (97.0, 99.0, 103.0, 106.0, 108.0)] == [False, True, True, True, False]
