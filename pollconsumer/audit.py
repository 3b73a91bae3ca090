"""The audit log: which person did what, and when."""

from __future__ import annotations

from pollconsumer.interface.api.app import PollConsumer, calls_of
from pollconsumer.store.audit_log import Intervention, acting_as

__all__ = ["Intervention", "acting_as", "interventions"]


def interventions(app: PollConsumer, limit: int = 100) -> list[Intervention]:
    """The last ``limit`` actions of people, newest first. The store of ``app`` keeps 10,000. StoreUnreachable."""
    return calls_of(app).ask(lambda store: store.audit(limit))
