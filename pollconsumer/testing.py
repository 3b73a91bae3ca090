"""An application under test: in memory, in virtual time, with nothing outside of the test's process.

It needs ``pip install 'pollconsumer[testing]'``."""

from __future__ import annotations

from pollconsumer.core.lifecycle import State
from pollconsumer.core.window import StopReason
from pollconsumer.interface.sandbox import Launched, Sandbox
from pollconsumer.store.reading.messages import Message

__all__ = ["Launched", "Message", "Sandbox", "State", "StopReason"]
