"""What the invariants must know of the handlers, without importing them: that would register them."""

from __future__ import annotations

MAX_ATTEMPTS = 4
AT_MOST_ONCE = ("once", "bulk_once")
BULK = ("bulk", "bulk_isolated", "bulk_once")
BULK_ISOLATED = "bulk_isolated"
ISOLATED = ("apart", BULK_ISOLATED)
HOOKED = ("hooked", "bulk")
"""Those whose messages a hook may skip."""
LATEST = "latest"
"""Whose messages all have a unique key until their start; some replace the one that waits."""
AFTER_END, PERIOD_MS = "crawl", 10_000
"""What recurs by a period that counts from the end of the last occurrence; the period."""
RECURRING = ("each_second", "some_seconds", "hourly", "hourly_too", AFTER_END)
UNCHARGED = ("Yield", "Asleep", "PutOff")
"""Outcomes of calls that cost no attempt."""
BACKOFF_MS = {"ValueError": 50, "RetryIn": 100, "exit 3": 50, "PutOff": 1000}
"""After which a call that ended so is tried again."""
SIGNAL = "approved"
"""What a handler with steps waits for."""
