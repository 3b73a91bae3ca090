"""The text of an error, as it is stored with its message."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING

import pytest

from pollconsumer.runtime.handling import handler
from pollconsumer.runtime.handling.handler import begin_reading, describe, trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


def test_a_traceback_says_that_a_file_was_changed_after_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "_read_at", math.inf)  # for the tests after this one
    file = tmp_path / "rows.py"
    file.write_text("def row():\n    return 1 / 0\n")
    code = compile(file.read_text(), file, "exec")
    names: dict[str, Callable[[], object]] = {}
    exec(code, names)

    def shown() -> str:
        try:
            names["row"]()
        except ZeroDivisionError as error:
            return trace(error).splitlines()[-1]
        return ""

    begin_reading()
    os.utime(file, (0, time.time() - 3600))
    assert shown() == "ZeroDivisionError: division by zero"
    os.utime(file, (0, time.time() + 3600))
    assert shown() == f"{file} was changed after this launch had read it, and ran as it was before"
