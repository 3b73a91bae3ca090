"""What becomes of a message whose attempt failed."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pollconsumer.core.retry import LONGEST_DEFERRAL, Backoff, Fatal, Retry, RetryIn, after_failure

BACKOFFS = st.builds(
    lambda first, factor, more, jitter: Backoff(first, factor, first + more, jitter),
    st.floats(0, 1e4),
    st.floats(1, 100),
    st.floats(0, 1e6),
    st.floats(0, 1),
)
CHANCE = st.floats(0, 1, exclude_max=True)


def test_delays_grow_by_the_factor_up_to_the_most() -> None:
    backoff = Backoff(first="1s", factor=2, most="10s", jitter=0)
    assert [backoff.delay(attempt, 0.9) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(BACKOFFS, st.integers(1, 65535), CHANCE)
def test_jitter_only_shortens_a_delay_and_by_no_more_than_its_share(
    backoff: Backoff, attempt: int, chance: float
) -> None:
    plain, delay = backoff.delay(attempt, 0.0), backoff.delay(attempt, chance)
    assert 0 <= plain * (1 - backoff.jitter) <= delay * (1 + 1e-9)
    assert delay <= plain <= backoff.most


@given(BACKOFFS, st.integers(1, 65534))
def test_a_later_attempt_never_waits_less(backoff: Backoff, attempt: int) -> None:
    assert backoff.delay(attempt, 0.5) <= backoff.delay(attempt + 1, 0.5)


@pytest.mark.parametrize(
    "options",
    [
        *({"first": "20m"}, {"first": "-1s"}, {"most": "soon"}),
        *({"factor": 0}, {"factor": 0.9}, {"factor": float("nan")}, {"jitter": -0.1}, {"jitter": 1.1}),
    ],
)
def test_a_backoff_that_cannot_be_meant_is_refused(options: dict[str, float | str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Backoff(**options)  # type: ignore[arg-type]


def failure(
    error: BaseException, attempt: int = 1, max_attempts: int = 5, fatal: tuple[type[BaseException], ...] = ()
) -> Retry | None:
    return after_failure(error, attempt, max_attempts=max_attempts, policy=Backoff(jitter=0), fatal=fatal, chance=0.5)


def test_a_failure_is_retried_after_the_backoff_of_its_attempt() -> None:
    assert [failure(ValueError(), attempt) for attempt in (1, 2, 3, 4)] == [Retry(1), Retry(2), Retry(4), Retry(8)]


@given(st.integers(1, 70000), st.integers(1, 70000))
def test_the_last_attempt_is_the_last(attempt: int, max_attempts: int) -> None:
    assert (failure(ValueError(), attempt, max_attempts) is None) == (attempt >= max_attempts)


def test_a_fatal_failure_is_not_retried() -> None:
    assert failure(Fatal("no")) is None
    assert failure(KeyError(), fatal=(LookupError,)) is None
    assert failure(ValueError(), fatal=(LookupError,)) == Retry(1)


def test_a_handler_may_name_the_delay_but_gets_no_attempt_more() -> None:
    assert failure(RetryIn("5m")) == Retry(300)
    assert failure(RetryIn(0.5), attempt=4) == Retry(0.5)
    assert failure(RetryIn(0.5), attempt=5) is None


@given(st.floats(max_value=0))
def test_a_negative_delay_is_refused_where_it_is_named(delay: float) -> None:
    assume(delay < 0)
    with pytest.raises(ValueError, match=r"."):
        RetryIn(delay)


def deferred(error: BaseException, since_due: float | None, attempt: int = 1) -> Retry | None:
    limits = {"max_attempts": 5, "policy": Backoff(), "chance": 0.5, "fatal": ()}
    return after_failure(error, attempt, since_due=since_due, **limits)  # type: ignore[arg-type]  # several types


@pytest.mark.parametrize("attempt", [1, 5, 60_000])
def test_what_is_deferred_uncharged_needs_no_attempt(attempt: int) -> None:
    assert deferred(RetryIn("1m", charged=False), 0, attempt) == Retry(60, charged=False)


def test_what_is_deferred_uncharged_waits_a_second_at_least() -> None:
    assert deferred(RetryIn(0, charged=False), 0) == Retry(1, charged=False)


def test_nothing_is_deferred_uncharged_beyond_a_week_after_it_was_due() -> None:
    assert deferred(RetryIn("1m", charged=False), LONGEST_DEFERRAL - 60) == Retry(60, charged=False)
    assert deferred(RetryIn("1m", charged=False), LONGEST_DEFERRAL - 59) is None
    assert deferred(RetryIn("8d", charged=False), 0) is None


def test_where_every_attempt_is_charged_that_of_one_that_is_deferred_is_too() -> None:
    assert deferred(RetryIn("1m", charged=False), None, 4) == Retry(60)
    assert deferred(RetryIn("1m", charged=False), None, 5) is None


class Seeing:
    def delay(self, attempt: int, chance: float, error: BaseException) -> float:
        return 100.0 * attempt + chance if isinstance(error, OSError) else 7.0


class Scaling:
    def delay(self, attempt: int, chance: float, scale: float = 2) -> float:
        return scale * attempt + chance


@pytest.mark.parametrize(("error", "delay"), [(OSError(), 200.5), (ValueError(), 7.0)])
def test_a_policy_that_asks_for_the_error_sees_it(error: Exception, delay: float) -> None:
    found = after_failure(error, 2, max_attempts=5, policy=Seeing(), fatal=(), chance=0.5)
    assert found == Retry(delay)


def test_another_third_parameter_keeps_its_default() -> None:
    assert after_failure(OSError(), 2, max_attempts=5, policy=Scaling(), fatal=(), chance=0.5) == Retry(4.5)


@given(BACKOFFS, st.integers(1, 9), CHANCE)
def test_a_backoff_goes_on_without_the_error(backoff: Backoff, attempt: int, chance: float) -> None:
    found = after_failure(OSError(), attempt, max_attempts=10, policy=backoff, fatal=(), chance=chance)
    assert found == Retry(backoff.delay(attempt, chance))
