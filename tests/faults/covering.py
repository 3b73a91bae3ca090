"""``python -m tests.faults.covering [WORD…]``: which of the store's guards cover each other.

For each promise it looks for the least sets of guards without which it is broken. A promise that is kept without some
of a set, and broken without all of it, is kept by each of them alone. Ends with 1 where these are not the sets of the
table. WORD is part of a promise's name.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.store import scripts
from pollconsumer.store.redis_store import RedisStore
from tests.conftest import NAMESPACE, real_server
from tests.faults.covering_table import COVERING
from tests.faults.mutation_table import MUTATIONS, Mutation
from tests.faults.promises import PROMISES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from tests.faults.promises import Promise
    from tests.store.servers import Server

LUA = Path(scripts.__file__).parent / "lua"
GUARDS = {each.name: each for each in MUTATIONS if all(edit.file.startswith("lua/") for edit in each.edits)}


def is_kept(promise: Promise, server: Server, without: Iterable[Mutation] = ()) -> bool:
    """What two guards have in common is taken out with the first of them."""
    with TemporaryDirectory(prefix="pc-covering-") as place:
        shutil.copytree(LUA, Path(place) / "lua")
        for edit in [edit for guard in without for edit in guard.edits]:
            path = Path(place) / edit.file
            path.write_text(path.read_text().replace(edit.old, edit.new, 1))
        with _scripts_in(Path(place) / "lua"):
            try:
                return promise(RedisStore(server.wire(), NAMESPACE))
            except PollConsumerError:
                return False
            finally:
                server.wire().command("SCRIPT", "FLUSH")
                server.clear()


@contextmanager
def _scripts_in(directory: Path) -> Iterator[None]:
    before, scripts._DIRECTORY = scripts._DIRECTORY, directory  # noqa: SLF001  no user has another
    try:
        yield
    finally:
        scripts._DIRECTORY = before  # noqa: SLF001


def covering_sets(promise: Promise, server: Server) -> set[frozenset[str]]:
    """Of more than one guard each, by name."""
    found: set[frozenset[str]] = set()
    looked_at: set[frozenset[str]] = set()

    def broken(without: Sequence[Mutation]) -> bool:
        return not is_kept(promise, server, without)

    def search(candidates: list[Mutation], apart: frozenset[str]) -> None:
        """All that lie among ``candidates``: those without one guard or another of the first that is found."""
        if apart in looked_at or not broken(candidates):
            return
        looked_at.add(apart)
        least = _least(candidates, broken)
        found.add(frozenset(each.name for each in least))
        for guard in least:
            search([each for each in candidates if each is not guard], apart | {guard.name})

    search([each for each in _of_use_to(promise, server) if is_kept(promise, server, [each])], frozenset())
    return found


def _of_use_to(promise: Promise, server: Server) -> list[Mutation]:
    """The guards in the scripts that a promise takes."""
    store = RedisStore(server.wire(), NAMESPACE)
    assert promise(store)
    files = {f"lua/{name}.lua" for name in ("_prelude", *store.wire.scripts._read)}  # noqa: SLF001  nobody else asks
    server.clear()
    return [guard for guard in GUARDS.values() if {edit.file for edit in guard.edits} <= files]


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
    with real_server() as server:
        for name, promise in PROMISES.items():
            if words and not any(word in name for word in words):
                continue
            found, expected = covering_sets(promise, server), {frozenset(guards) for guards in COVERING.get(name, ())}
            differing += found != expected
            for guards in sorted(found | expected, key=sorted):
                said = "" if guards in found & expected else "NOT IN THE TABLE" if guards in found else "NOT FOUND"
                print(f"{name}: {', '.join(sorted(guards))} {said}".rstrip(), flush=True)
    print(f"{differing} promises that other guards keep than the table says")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
