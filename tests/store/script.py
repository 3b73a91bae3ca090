"""``python -m tests.store.script NAME [LINE]``: the text of a script as the server gets it, linked with its parts.

Its lines have the numbers that the server's errors and a test of the limits of Lua give; with LINE, those around it.
"""

from __future__ import annotations

import argparse
import sys

from pollconsumer.store.scripts import Scripts
from tests.store.commands_used import scripts

AROUND = 10
"""Lines that are shown before and after the one that is asked for."""


def numbered(name: str, line: int | None = None) -> list[str]:
    """The lines of a script; a mark stands before ``line``."""
    lines = Scripts()[name].code.decode().split("\n")
    width = len(str(len(lines)))
    first, last = (1, len(lines)) if line is None else (max(1, line - AROUND), min(len(lines), line + AROUND))
    return [f"{'>' if at == line else ' '}{at:{width}} {lines[at - 1]}".rstrip() for at in range(first, last + 1)]


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.store.script", description=__doc__)
    parser.add_argument("name", choices=sorted(scripts()), metavar="NAME", help="as in store/lua/")
    parser.add_argument("line", nargs="?", type=int, metavar="LINE", help="show those around it")
    given = parser.parse_args(args)
    print("\n".join(numbered(given.name, given.line)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
