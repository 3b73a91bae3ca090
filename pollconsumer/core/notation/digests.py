"""SHA-1 and SHA-256 in hexadecimal.

They use the interpreter's built-in modules if there are any: importing hashlib loads OpenSSL, which takes as long as
the first ten round trips of a launch."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any


def sha1(data: bytes) -> str:
    """The SHA-1 of ``data``, by which the server identifies scripts. It is no protection against an attacker."""
    return str(_sha1(data, usedforsecurity=False).hexdigest())


def sha256(data: bytes) -> str:
    return str(_sha256(data).hexdigest())


def _first(name: str, modules: tuple[str, ...]) -> Any:
    for module in modules:
        with suppress(ImportError):
            return getattr(import_module(module), name)
    raise ImportError(name)


_sha1 = _first("sha1", ("_sha1", "hashlib"))
_sha256 = _first("sha256", ("_sha2", "_sha256", "hashlib"))  # _sha256 until Python 3.11
