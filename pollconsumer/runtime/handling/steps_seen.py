"""Sees in a function's code, without a call, that it takes steps."""

from __future__ import annotations

from collections.abc import Callable
from dis import get_instructions
from inspect import unwrap
from typing import Any

_ACTIONS = frozenset({"step", "step_async", "sleep", "wait_for"})


def step_seen(function: Callable[..., Any]) -> str | None:
    """The first action of its ``context`` by which the function takes a step, as far as its own code shows."""
    code, loaded = getattr(unwrap(function), "__code__", None), False
    for instruction in get_instructions(code) if code is not None else ():
        if loaded and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and instruction.argval in _ACTIONS:
            return f"context.{instruction.argval}"
        names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        loaded = instruction.opname.startswith("LOAD_") and names[-1] == "context"
    return None
