"""``python -m tests.faults.covering [WORD…]``: which of the store's guards cover each other.

For each promise it looks for the least sets of guards without which it is broken. A promise that is kept without some
of a set, and broken without all of it, is kept by each of them alone. Ends with 1 where these are not the sets of the
table. WORD is part of a promise's name.
"""

from __future__ import annotations

import re
import shutil
import sys
from contextlib import suppress
from functools import cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.store import scripts
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.scripts import Script, Scripts
from tests.conftest import NAMESPACE, real_server
from tests.faults.covering_table import COVERING
from tests.faults.mutation_table import MUTATIONS, Mutation, edited
from tests.faults.promises import PROMISES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tests.faults.promises import Promise
    from tests.store.servers import Server

LUA = Path(scripts.__file__).parent / "lua"
FORGOTTEN_AFTER = 200
"""Trials after which the server forgets all scripts: it would keep each edited one."""
PARTS = re.compile(r"-- (?:NEEDS|PART) (.+)")
GUARDS = {each.name: each for each in MUTATIONS if all(edit.file.startswith("lua/") for edit in each.edits)}


class ScriptsWithout(Scripts):
    """The scripts without some guards: those in ``files`` are read again, and all others shared with ``whole``."""

    def __init__(self, whole: Scripts, files: set[str]) -> None:
        super().__init__()
        self._whole, self._files = whole, files

    def __missing__(self, name: str) -> Script:
        if files_of(name) & self._files:
            return super().__missing__(name)
        script = self[name] = self._whole[name]
        self._by_sha[script.sha] = script
        return script


class Trial:
    """A server that is emptied for each promise, and a copy of the scripts that guards are taken out of."""

    def __init__(self, server: Server, place: Path) -> None:
        self._wire, self._directory = server.wire(), place / "lua"
        self._whole, self._without = Scripts(), 0
        shutil.copytree(LUA, self._directory)

    def keeps(self, promise: Promise, without: Collection[Mutation] = ()) -> bool:
        """What two guards have in common is taken out with the first of them."""
        edits = [edit for guard in without for edit in guard.edits]
        for edit in edits:
            path = self._directory.parent / edit.file
            with suppress(ValueError):
                path.write_text(edited(path.read_text(), edit))
        before, scripts._DIRECTORY = scripts._DIRECTORY, self._directory  # noqa: SLF001  no user has another
        try:
            self._wire.scripts = ScriptsWithout(self._whole, {edit.file for edit in edits})
            return promise(RedisStore(self._wire, NAMESPACE))
        except (PollConsumerError, ArithmeticError, LookupError, TypeError, ValueError):
            return False  # without a guard the store may answer what our code does not expect
        finally:
            scripts._DIRECTORY = before  # noqa: SLF001
            self._wire.command("FLUSHALL")
            self._without += 1
            if self._without % FORGOTTEN_AFTER == 0:
                self._wire.command("SCRIPT", "FLUSH")
            for edit in edits:
                shutil.copy(LUA.parent / edit.file, self._directory.parent / edit.file)

    def of_use_to(self, promise: Promise) -> list[Mutation]:
        """The guards in the scripts that a promise takes, each of which it can do without."""
        assert self.keeps(promise)
        files = set[str]().union(*(files_of(name) for name in self._wire.scripts))
        guards = [guard for guard in GUARDS.values() if {edit.file for edit in guard.edits} <= files]
        return [guard for guard in guards if self.keeps(promise, [guard])]


@cache
def files_of(name: str) -> set[str]:
    """A script's file, and those of the parts that it takes, which may take others."""
    parts = PARTS.findall((LUA / f"{name}.lua").read_text())
    needed = [f"parts/{part}" for words in parts for part in words.split()]
    return {f"lua/{name}.lua"}.union(*map(files_of, needed))


def covering_sets(promise: Promise, trial: Trial) -> set[frozenset[str]]:
    """Of more than one guard each, by name: all pairs, and of larger sets those that lie among what is left.

    Larger ones are looked for by taking out all, which finds none where the lack of one guard hides that of others.
    """
    guards = trial.of_use_to(promise)
    found = {
        frozenset((one.name, other.name))
        for one, other in combinations(guards, 2)
        if not trial.keeps(promise, [one, other])
    }
    looked_at: set[frozenset[str]] = set()

    def search(candidates: list[Mutation], apart: frozenset[str]) -> None:
        """All that lie among ``candidates``: those without one guard or another of the first that is found."""
        if apart in looked_at or trial.keeps(promise, candidates):
            return
        looked_at.add(apart)
        least = _least(candidates, lambda without: not trial.keeps(promise, without))
        found.add(frozenset(each.name for each in least))
        for guard in least:
            search([each for each in candidates if each is not guard], apart | {guard.name})

    search(guards, frozenset())
    return found


def _least(
    candidates: Sequence[Mutation], broken: Callable[[Sequence[Mutation]], bool], rest: Sequence[Mutation] = ()
) -> list[Mutation]:
    """Those of ``candidates`` that it takes beside ``rest``, by halves (Junker, "QuickXplain", 2004)."""
    if rest and broken(rest):
        return []
    if len(candidates) == 1:
        return list(candidates)
    half = len(candidates) // 2
    one, other = candidates[:half], candidates[half:]
    of_other = _least(other, broken, [*rest, *one])
    return _least(one, broken, [*rest, *of_other]) + of_other


def main(words: Collection[str]) -> int:
    differing = 0
    with real_server() as server, TemporaryDirectory(prefix="pc-covering-") as place:
        trial = Trial(server, Path(place))
        for name, promise in PROMISES.items():
            if words and not any(word in name for word in words):
                continue
            found, expected = covering_sets(promise, trial), {frozenset(guards) for guards in COVERING.get(name, ())}
            differing += found != expected
            for guards in sorted(found | expected, key=sorted):
                said = "" if guards in found & expected else "NOT IN THE TABLE" if guards in found else "NOT FOUND"
                print(f"{name}: {' | '.join(sorted(guards))} {said}".rstrip(), flush=True)
    print(f"{differing} promises that other guards keep than the table says")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
