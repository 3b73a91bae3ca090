"""What an application offers for batches and chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pollconsumer.core.notation.timespan import Span
from pollconsumer.interface.api.app_calls import AppCalls
from pollconsumer.runtime.new_messages import Sendable, new_id

if TYPE_CHECKING:
    from pollconsumer.interface.api.batches.app_batches import AppBatches
    from pollconsumer.interface.api.batches.chain import Chain
    from pollconsumer.interface.api.batches.open_batch import OpenBatch


class BatchCalls:
    """Batches and chains of an application. Imported lazily: most applications have none."""

    _calls: AppCalls

    def batch(
        self,
        id: str | None = None,  # noqa: A002  as in messages
        *,
        then: Sendable | None = None,
        failed: Sendable | None = None,
        ended: Sendable | None = None,
        expires: Span | None = None,
        cancelled_as: Literal["completed"] | None = None,
    ) -> OpenBatch:
        """A batch, for ``with`` or ``async with``, in which its ``add`` adds members.

        Each callback, ``handler.args(…)``, is enqueued once: ``then`` when all members are completed, ``failed`` at the
        first that is dead, cancelled or expired, ``ended`` when all have ended. ``expires``: how long after its opening
        it calls ``failed`` and ``ended`` without its last members. With ``cancelled_as="completed"`` members that are
        cancelled or stopped do not fail it: ``then`` follows once the others are completed. With an ``id`` it can be
        enqueued again, after an error. BadData or UsageError for an invalid argument.
        """
        from pollconsumer.interface.api.batches.open_batch import OpenBatch
        from pollconsumer.runtime.new_batches import new_batch

        batch_id = new_id() if id is None else id
        codec = self._calls.codec
        return OpenBatch(self._calls, new_batch(batch_id, then, failed, ended, expires, cancelled_as, codec))

    @property
    def batches(self) -> AppBatches:
        """Batches that anybody has enqueued."""
        from pollconsumer.interface.api.batches.app_batches import AppBatches

        return AppBatches(self._calls)

    def chain(self, *links: Sendable, failed: Sendable | None = None) -> Chain:
        """A chain of ``handler.args(…)``: each is enqueued with the completion of the one before, whose result is its
        ``context.previous.result``. The first that is dead, cancelled or expired ends the chain, and ``failed`` is
        enqueued. UsageError for links that do not fit in a chain."""
        from pollconsumer.interface.api.batches.chain import Chain

        return Chain(self._calls, links, failed)
