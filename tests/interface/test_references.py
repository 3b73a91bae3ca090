"""The references of docs/reference/ say what the program is today."""

from __future__ import annotations

import pytest

from tests.interface import references


@pytest.mark.crossing
def test_the_references_are_those_that_the_program_makes_now() -> None:
    stale = [path.name for path, text in references.references().items() if path.read_text("utf-8") != text]
    assert stale == [], "python -m tests.interface.references writes them again"
