"""The spool of the settings. Launches and producers import it lazily: few settings name one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pollconsumer.core.errors import CannotCreate, NotReplicated, PollConsumerError, StoreUnreachable
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.embedded.directory import modes_of
from pollconsumer.runtime.spool.spool import Spool

NOT_SPOOLED = "; not spooled: "


def spool_of(settings: Settings) -> Spool:
    """The spool that the settings name."""
    directory = settings.spool_directory()
    assert directory is not None
    shared = settings.data is not None and modes_of(settings.data_directory()).shared
    return Spool(directory, settings.namespace, shared=shared)


def usable_spool(settings: Settings) -> Path | None:
    """The spool's directory, None without one. PermissionDenied or CannotCreate if it cannot be used."""
    if settings.spool is not None:
        spool_of(settings).check()
    return settings.spool_directory()


def spool_instead(settings: Settings, messages: Sequence[NewMessage], error: StoreUnreachable | CannotCreate) -> None:
    """Keep messages in the spool that could not be enqueued because of ``error``, or perhaps were: their ids tell.
    Raises ``error`` where they cannot be spooled: its text ends with the reason, its ``accepted`` with the ids of those
    that are."""
    if isinstance(error, NotReplicated):
        raise error
    if any(message.key for message in messages):
        error.args = (f"{error}{NOT_SPOOLED}only the store knows who has a unique key",)
        raise error
    try:
        spool_of(settings).put(messages)
    except (PollConsumerError, OSError) as refusal:
        error.accepted = [*error.accepted, *getattr(refusal, "accepted", ())]
        error.args = (f"{error}{NOT_SPOOLED}{refusal}",)
        raise error from refusal
