"""Examples that `.ci/check` leaves out, full or not: one more of several that prove the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def long(*values: Any) -> ParameterSet:
    """For `pytest.mark.parametrize`."""
    return pytest.param(*values, marks=pytest.mark.long)
