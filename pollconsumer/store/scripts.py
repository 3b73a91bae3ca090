"""The Lua scripts: one file an operation, its header binding its KEYS to names."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

_DIRECTORY = Path(__file__).parent / "lua"
_KEYS = re.compile(r"^-- KEYS (.+)$", re.MULTILINE)

# All others free memory, move it about, or need next to none: they must work on a full server.
_MAY_GROW = {"enqueue", "checkpoint"}


class Script:
    """An operation of the store."""

    def __init__(self, name: str, prelude: str, *, shebang: bool) -> None:
        source = (_DIRECTORY / f"{name}.lua").read_text("utf-8")
        header = _KEYS.search(source)
        if header is None:
            raise AssertionError(f"{name}.lua does not name its KEYS")
        self.keys = tuple(header[1].split())
        """Names of the keys; ``...`` before the last says that it takes all that are left."""
        flags = ("#!lua\n" if name in _MAY_GROW else "#!lua flags=allow-oom\n") if shebang else ""
        self.code = (flags + self._binding() + prelude + source).encode()
        self.sha = hashlib.sha1(self.code, usedforsecurity=False).hexdigest().encode()

    def _binding(self) -> str:
        single = self.keys[: self.keys.index("...")] if "..." in self.keys else self.keys
        names = ", ".join(single)
        binding = f"local {names} = {', '.join(f'KEYS[{i}]' for i in range(1, len(single) + 1))} "
        if len(single) < len(self.keys):
            binding += f"local {self.keys[-1]} = {{unpack(KEYS, {len(single) + 1})}} "
        return binding


class Scripts:
    """Every script by name, read when it is first used: a launch needs half of them.

    ``shebang`` is off for fakeredis, which does not read the line that carries a script's flags.
    """

    def __init__(self, *, shebang: bool = True) -> None:
        self._prelude = (_DIRECTORY / "_prelude.lua").read_text("utf-8")
        self._shebang = shebang
        self._read: dict[str, Script] = {}

    def __getitem__(self, name: str) -> Script:
        script = self._read.get(name)
        if script is None:
            script = self._read[name] = Script(name, self._prelude, shebang=self._shebang)
        return script

    def known(self) -> list[Script]:
        """The scripts in use so far."""
        return list(self._read.values())
