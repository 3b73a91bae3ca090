"""Context variables of a message: what one sets, the next does not see."""

from __future__ import annotations

import sys
from contextvars import Context, copy_context


def own_context(base: Context | None = None) -> Context:
    """A copy of ``base``, or of the caller's, for one message."""
    context = copy_context() if base is None else base.copy()
    if "decimal" in sys.modules:
        renew_decimal(context)
    return context


def renew_decimal(context: Context) -> None:
    """If a variable of ``context`` is decimal's: that is itself changed, by ``getcontext().prec = 5``."""
    decimal = sys.modules["decimal"]
    kind = getattr(decimal, "Context", None)  # None while another thread imports it
    for value in context.values():
        if type(value) is kind:
            context.run(decimal.setcontext, value.copy())
            return
