"""Makes batches and their members of producers' arguments, and validates them before anything is sent."""

from __future__ import annotations

from pollconsumer.core.errors import BadData
from pollconsumer.core.messages.message import Codec, NewMessage, check_stem
from pollconsumer.core.messages.sequel import identified
from pollconsumer.core.notation.timespan import Span
from pollconsumer.runtime.new_messages import Sendable, callback_of, lifetime_ms, message_of, refuse_own_identity
from pollconsumer.store.queues.batches import NewBatch

MOST_MEMBERS = 1_000_000
"""Members that a producer adds to a batch."""
LONGEST_ID = 100
"""Characters of a batch's id: members and callbacks have ids that begin with it."""


def new_batch(
    batch_id: str,
    then: Sendable | None,
    failed: Sendable | None,
    ended: Sendable | None,
    expires: Span | None,
    cancelled_as: str | None = None,
    codec: Codec | None = None,
) -> NewBatch:
    """A batch with these callbacks, encoded by the ``codec``. Its home is the queue of the first of them. BadData for
    an invalid id, expiry, or ``cancelled_as``."""
    if cancelled_as not in (None, "completed"):
        raise BadData("cancelled_as", repr(cancelled_as), "completed, or leave it out")
    check_stem(batch_id, "batch id", LONGEST_ID)
    given = {"then": then, "failed": failed, "ended": ended}
    called = {name: callback for name, callback in given.items() if callback is not None}
    home = next((callback_of(called[name], batch_id, name)["queue"] for name in called), "default")
    callbacks = {name: callback_of(callback, batch_id, name, home) for name, callback in called.items()}
    if codec is not None:
        from pollconsumer.core.messages.codec import coded_packed  # few applications have a codec

        callbacks = {name: coded_packed(callback, codec) for name, callback in callbacks.items()}
    lasts = 0 if expires is None else lifetime_ms("expires", expires)
    return NewBatch(home, batch_id, callbacks, lasts, spares_cancelled=cancelled_as is not None)


def member_of(sendable: Sendable, home: str, batch: str, number: int) -> NewMessage:
    """The member of that number."""
    message = message_of(sendable, "a member of a batch")
    refuse_own_identity(message, "a member of a batch")
    return identified(message, f"{batch}.{number}", home)
