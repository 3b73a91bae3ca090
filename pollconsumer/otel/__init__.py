"""Spans of OpenTelemetry around messages, whose traces go on from their senders. Imported only where one is wanted."""

from __future__ import annotations

from pollconsumer.otel.message_spans import instrument

__all__ = ["instrument"]
