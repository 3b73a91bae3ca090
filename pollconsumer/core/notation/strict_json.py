"""Strict JSON: without the NaN and Infinity that Python's parser accepts, and with one exception for invalid text."""

from __future__ import annotations

import json
from typing import Any


def parse(text: str | bytes) -> Any:
    """The value of ``text``. ValueError for anything that is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number of JSON")
