"""A handler's result is kept as JSON, or dropped with a report."""

from __future__ import annotations

import json
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given

from pollconsumer.core.events import ResultDropped
from pollconsumer.runtime.session.settlements import MAX_RESULT_BYTES
from pollconsumer.store.records.reservations import Reservation
from tests.core.test_message import VALUES
from tests.runtime.test_exchange import Exchanging
from tests.store.test_steps import LOTS

if TYPE_CHECKING:
    from pollconsumer.core.events import Event
    from pollconsumer.store.records.steps import CompletionEffects

RESERVATION = Reservation(LOTS[0], b"a", b"{}")


class Number(IntEnum):
    ONE = 1


class Text(StrEnum):
    ONE = '"one"'


class Unlucky:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def kept(result: Any) -> tuple[CompletionEffects | None, list[Event]]:
    exchanging = Exchanging()
    try:
        return exchanging.settling.effects_of(RESERVATION, 1000, None, result, 100.0), exchanging.told
    finally:
        exchanging.opener.close()


@example(True)
@example(Number.ONE)
@example(Text.ONE)
@example('\U0001f600"\n\x00')
@example(-(10**4299))
@given(VALUES)
def test_a_result_is_kept_as_the_encoder_of_the_standard_library_has_it(result: Any) -> None:
    encoded = json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()
    assert kept(result) == (None if result is None else (1000, encoded, b"", b""), [])


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("\ud83d", "it is no JSON: result; it holds a lone surrogate"),
        (10**4300, "it is no JSON: result; the number has too many digits"),
        (float("nan"), "it is no JSON: result: nan; NaN and Infinity are not JSON"),
        (["\ud83d"], "it is no JSON: result[0]; it holds a lone surrogate"),
        ({"a": [Unlucky()]}, "it is no JSON: result.a[0]: a Unlucky has no JSON form; return what JSON has"),
        ("x" * MAX_RESULT_BYTES, f"{MAX_RESULT_BYTES + 2} bytes of JSON, {MAX_RESULT_BYTES} at most"),
    ],
    ids=["surrogate", "digits", "nan", "surrogate-within", "object", "large"],
)
def test_a_result_that_cannot_be_kept_is_dropped_with_the_reason(result: Any, reason: str) -> None:
    extra, told = kept(result)
    assert extra is None
    [event] = told
    assert isinstance(event, ResultDropped)
    assert (event.id, event.handler) == (RESERVATION.name, RESERVATION.handler)
    assert event.reason.startswith(reason)
