"""The clocks of a machine."""

from __future__ import annotations

import time
from typing import Protocol

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clocks(Protocol):
    """In seconds; a simulated machine has its own."""

    def monotonic(self) -> float: ...

    def boot_time(self) -> float:
        """On a clock that goes on while the machine sleeps."""

    def sleep(self, seconds: float) -> None: ...


class SystemClocks:
    """Those of this machine."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    @staticmethod
    def boot_time() -> float:
        return time.clock_gettime(_BOOT)


SYSTEM_CLOCKS = SystemClocks()
