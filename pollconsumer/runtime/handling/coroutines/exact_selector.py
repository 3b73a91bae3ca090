"""The selector of an event loop whose waits are exact to a fraction of a millisecond."""

from __future__ import annotations

from selectors import DefaultSelector
from typing import Any

from pollconsumer.store.client.exact_wait import wait_readable

LONGEST_SELECT = 1.0
"""Maximum timeout of a select, in seconds: the descriptor that wakes the loop may have been closed."""


class ExactSelector(DefaultSelector):
    """Waits exactly: epoll alone rounds timeouts up to whole milliseconds."""

    def select(self, timeout: float | None = None) -> Any:
        timeout = LONGEST_SELECT if timeout is None else min(timeout, LONGEST_SELECT)
        if timeout > 0 and hasattr(self, "fileno"):  # not that of poll
            if not wait_readable([self.fileno()], timeout):
                return []
            timeout = 0
        return super().select(timeout)
