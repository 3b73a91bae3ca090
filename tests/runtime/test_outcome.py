"""The text of an error, as it is stored with its message."""

from __future__ import annotations

from pollconsumer.runtime.handling.outcome import describe


def test_a_group_of_errors_is_told_with_the_first_of_them() -> None:
    inner = ExceptionGroup("inner", [KeyError("a"), TypeError()])
    group = ExceptionGroup("two of them", [ValueError("no such"), inner])
    assert describe(group) == (
        "ExceptionGroup: two of them (2 sub-exceptions): ValueError: no such; "
        "ExceptionGroup: inner (2 sub-exceptions): KeyError: 'a'; TypeError"
    )
    many = ExceptionGroup("many", [ValueError(n) for n in range(9)])
    assert describe(many) == "ExceptionGroup: many (9 sub-exceptions): ValueError: 0; ValueError: 1; ValueError: 2"


def test_a_zero_in_an_error_is_escaped() -> None:
    assert describe(ValueError("a\0b")) == "ValueError: a\\x00b"
