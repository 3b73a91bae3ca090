"""Transactions and errors of Sentry around messages. Imported only where they are wanted."""

from __future__ import annotations

from pollconsumer.sentry.message_transactions import instrument

__all__ = ["instrument"]
