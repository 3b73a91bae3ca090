"""The table of the store's guards holds for the store as it is; and of those that cover each other, each is enough."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lupa.lua51 import LuaRuntime

from tests.faults import mutations
from tests.faults.covering import GUARDS, Trial
from tests.faults.covering_table import COVERING
from tests.faults.mutation_table import CHANGES, MUTATIONS, STORE, Mutation, edited, guarded, marked
from tests.faults.mutations import ROOT, nearest
from tests.faults.promises import PROMISES
from tests.simulation.unseen import UNSEEN

if TYPE_CHECKING:
    from pollconsumer.store.queues.redis_store import RedisStore
    from tests.store.servers import Server

IN_TWO_LINES = {"settle: places freed for those in line"}
COVERED = [(promise, guards) for promise, sets in COVERING.items() for guards in sets]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_a_mutation_makes_of_its_lines_is_another_program(mutation: Mutation) -> None:
    for edit in mutation.edits:
        text = (STORE / edit.file).read_text()
        mutated = edited(text, edit)
        assert mutated != text
        _compile(edit.file, mutated)
    for path, _, test in (each.partition("::") for each in nearest(mutation)):
        assert not test or f"def {test}(" in (ROOT / path).read_text()
        assert (ROOT / path).exists()


def _compile(file: str, text: str) -> None:
    """What cannot be compiled is found by every test, and shows nothing."""
    if file.endswith(".lua"):
        LuaRuntime(encoding=None).compile(text.encode())
    else:
        compile(text, file, "exec")


def test_every_guard_has_a_name_of_its_own_on_one_line() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    for mutation in MUTATIONS:
        [edit] = mutation.edits
        lines = [at for at, name in marked((STORE / edit.file).read_text()) if name == edit.guard]
        assert len(lines) == 1 + (mutation.name in IN_TWO_LINES), mutation.name


def test_every_change_is_that_of_a_mark() -> None:
    assert CHANGES.keys() <= {mutation.name for mutation in MUTATIONS}


def test_every_mark_is_read() -> None:
    for path in guarded():
        text = path.read_text()
        assert len({at for at, _ in marked(text)}) == len(re.findall(r"\bGUARD\b *\w", text)), path.name


@pytest.mark.parametrize("promise", PROMISES)
def test_the_store_keeps_its_promises(promise: str, store: RedisStore) -> None:
    assert PROMISES[promise](store)


@pytest.mark.parametrize(("promise", "guards"), COVERED, ids=lambda value: value if isinstance(value, str) else "")
def test_of_guards_that_cover_each_other_each_alone_is_enough_and_none_is_not(
    promise: str, guards: tuple[str, ...], valkey: Server, tmp_path: Path
) -> None:
    trial = Trial(valkey, tmp_path)
    for kept in guards:
        others = [GUARDS[name] for name in guards if name != kept]
        assert trial.keeps(PROMISES[promise], others), kept
    assert not trial.keeps(PROMISES[promise], [GUARDS[name] for name in guards])


def test_what_the_simulation_does_not_miss_is_a_guard() -> None:
    assert UNSEEN.keys() <= {each.name for each in MUTATIONS}


def test_who_looks_for_what_notices_waits_for_the_tests_and_not_for_what_they_left_behind(tmp_path: Path) -> None:
    leaves = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    assert mutations._notices(["-c", f"{leaves}; raise SystemExit('FAILED a/b::c')"], tmp_path, 60.0) == "b::c"  # noqa: SLF001
    assert mutations._notices(["-c", leaves], tmp_path, 60.0) is None  # noqa: SLF001
    assert mutations._notices(["-c", f"{leaves}; input()"], tmp_path, 0.0) is not None  # noqa: SLF001


@pytest.mark.parametrize("longest", [60.0, 0.0])
def test_what_fails_and_may_not_fail_again_leaves_all_that_it_printed(tmp_path: Path, longest: float) -> None:
    prints = f"print('one'); print('FAILED a/b::c', flush=True); {'raise SystemExit(1)' if longest else 'input()'}"
    by = mutations._notices(["-c", prints], tmp_path, longest, keep=True)  # noqa: SLF001
    assert by is not None
    said, _, file = by.removesuffix(")").partition(" (output: ")
    output = Path(file)
    assert said == ("b::c" if longest else f"no end of {prints}")
    assert output.read_text() == "one\nFAILED a/b::c\n" or not longest  # it had no time
    output.unlink()


def test_guards_are_drawn_and_shown_to_the_quick_tests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[Mutation, object]] = []

    def noticed(mutation: Mutation, stages: object) -> mutations.Noticed:
        seen.append((mutation, stages))
        return mutations.Noticed("a test", 0, 0.0)

    monkeypatch.setattr(mutations, "noticed", noticed)
    monkeypatch.setattr(mutations, "objection", lambda *_: None)
    assert mutations.main(["--quick", "--any", "3", "--seed", "5"]) == 0
    drawn = {mutation.name for mutation, _ in seen}
    assert (len(drawn), {id(stages) for _, stages in seen}) == (3, {id(mutations.QUICK_STAGES)})
    assert all("--quick" in stage for stage in mutations.QUICK_STAGES)
    assert "3 mutations, 0 survived" in capsys.readouterr().out
