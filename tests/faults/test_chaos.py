"""Short runs under faults with fixed seeds: every invariant holds after each."""

from __future__ import annotations

import pytest

from tests.faults.checker import violations
from tests.faults.storm import Storm


@pytest.mark.parametrize("seed", [1, 2])
def test_every_promise_holds_under_faults(seed: int) -> None:
    storm = Storm(seed, messages=60, faults=4)
    try:
        history = storm.run()
    finally:
        storm.close()
    assert violations(history) == []
