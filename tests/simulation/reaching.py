"""Which guards stories and scenarios come to, in the untouched tree: ``python -m tests.simulation.reaching``. With
names of scenarios, which guards these come to.

Prints a JSON object: the name of each scenario, and ``stories``, with the names of the mutations to whose lines it
comes, with one fault at most. A guard to which nothing comes cannot be missed, so that nobody needs to hunt for it.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import greenlet

from pollconsumer.core.notation.digests import sha1
from tests.fast_fakeredis import socket, store
from tests.faults.mutation_table import MUTATIONS, STORE, marked
from tests.simulation.catalogue import CATALOGUE
from tests.simulation.exploring import explore
from tests.simulation.hunting import STORIES
from tests.simulation.installation import SCRIPTS
from tests.simulation.story import tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType, FrameType

SEEDS = range(1, 9)
Lines = defaultdict[int, list[str]]
"""Names of mutations by the line that is marked."""
HOOK = b"""function(lines, reached)
  debug.sethook(function(_, line)
    local of = lines[line]
    local source = of and debug.getinfo(2, 'S').source
    if source and of[source] then
      of[source] = nil
      reached(source, line)
    end
  end, 'l')
end"""
"""Tells once of each line of a script, by its digest, that is among ``lines``."""


class Naming:
    """A runtime of Lua that names a script by its digest, so that the hook knows which one runs."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def compile(self, code: bytes) -> Any:
        return self._runtime.compile(code, sha1(code).encode())


class Reached:
    """``names``: mutations whose lines were come to since it was emptied."""

    def __init__(self) -> None:
        self.names = set[str]()
        self._python, self._scripts = _in_python(), _in_scripts()
        self._of_code: dict[CodeType, dict[int, list[str]]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        connect = socket.connect

        def watched(server: Any) -> Any:
            connected = connect(server)
            lua = connected._lua = Naming(connected._lua)  # noqa: SLF001  ours
            lines: Any = lua.table()
            for digest, marks in self._scripts.items():
                for line in marks:
                    lines[line] = lines[line] or lua.table()
                    lines[line][digest] = True
            lua.eval(HOOK)(lines, lambda digest, line: self.names.update(self._scripts[digest][line]))
            return connected

        with mock.patch.object(store, "connect", watched):
            greenlet.settrace(lambda _, __: sys.settrace(self._call))  # each has its own
            sys.settrace(self._call)
            try:
                yield
            finally:
                sys.settrace(None)
                greenlet.settrace(None)

    def _call(self, frame: FrameType, _event: str, _: Any) -> Any:
        code = frame.f_code
        lines = self._of_code.get(code)
        if lines is None:
            marks, own = self._python.get(code.co_filename, Lines()), {line for *_, line in code.co_lines()}
            lines = self._of_code[code] = {line: marks[line] for line in marks if line in own}
        return partial(self._line, lines) if lines else None

    def _line(self, lines: dict[int, list[str]], frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.names.update(lines.pop(frame.f_lineno, ()))
        return partial(self._line, lines) if lines else None

    def empty(self) -> None:
        self.names.clear()
        self._of_code.clear()


def _in_python() -> dict[str, Lines]:
    """The marked lines of each file."""
    found = defaultdict[str, Lines](partial(Lines, list))
    for mutation in MUTATIONS:
        for edit in mutation.edits:
            if edit.file.endswith(".py"):
                path = (STORE / edit.file).resolve()
                for at, guard in marked(path.read_text()):
                    if guard == edit.guard:
                        found[str(path)][at + 1].append(mutation.name)
    return found


def _in_scripts() -> dict[bytes, Lines]:
    """The marked lines of each script, by its digest. A part's guard is taken for that of each part with its name."""
    names = defaultdict[str, list[str]](list)
    for mutation in MUTATIONS:
        for edit in mutation.edits:
            if edit.file.endswith(".lua"):
                names[edit.guard].append(mutation.name)
    found = defaultdict[bytes, Lines](partial(Lines, list))
    for script in SCRIPTS.values():
        for at, guard in marked(script.code.decode()):
            found[script.sha][at + 1] += names[guard]
    return found


def main(names: Sequence[str]) -> None:
    reached, found = Reached(), dict[str, list[str]]()
    with reached.watching():
        for scenario in CATALOGUE:
            if names and scenario.__name__ not in names:
                continue
            explore(scenario, faults=1)
            found[scenario.__name__] = sorted(reached.names)
            reached.empty()
        if not names:
            for seed in SEEDS:
                tell(seed)
            found[STORIES] = sorted(reached.names)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
