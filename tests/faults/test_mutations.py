"""The table of the store's guards holds for the store as it is; and where two cover each other, each is enough."""

from __future__ import annotations

import pytest

from tests.faults.mutation_table import MUTATIONS, PAIRS, Mutation
from tests.faults.mutations import ROOT, edited


@pytest.mark.parametrize("mutation", [*MUTATIONS, *PAIRS], ids=lambda mutation: mutation.name)
def test_what_a_mutation_takes_out_stands_there_once(mutation: Mutation) -> None:
    for edit in mutation.edits:
        text = (ROOT / "pollconsumer" / "store" / edit.file).read_text()
        assert edited(text, edit) != text
