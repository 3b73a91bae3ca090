"""The references of docs/reference/ say what the program is today."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interface import references

if TYPE_CHECKING:
    from tests.site import Site


@pytest.mark.ends_with(1)  # doctor finds its dead letter
def test_the_references_are_those_that_the_program_makes_now(site: Site) -> None:
    stale = [path.name for path, text in references.references(site).items() if path.read_text("utf-8") != text]
    assert stale == [], "python -m tests.interface.references writes them again"
