"""What the invariants must know of the handlers, without importing them: that would register them."""

from __future__ import annotations

MAX_ATTEMPTS = 4
AT_MOST_ONCE = ("once", "bulk_once")
BULK = ("bulk", "bulk_isolated", "bulk_once")
BULK_ISOLATED = "bulk_isolated"
RECURRING = ("each_second", "some_seconds", "hourly", "hourly_too")
UNCHARGED = ("Yield", "Asleep")
"""Outcomes of calls that cost no attempt."""
BACKOFF_MS = {"ValueError": 50, "RetryIn": 100, "exit 3": 50}
"""After which a call that ended so is tried again."""
SIGNAL = "approved"
"""What a handler with steps waits for."""
