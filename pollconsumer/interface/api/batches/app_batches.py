"""``app.batches``: batches that anybody has enqueued."""

from __future__ import annotations

from collections.abc import Iterator

from pollconsumer.interface.api.batches.app_batch import AppBatch
from pollconsumer.interface.api.store_calls import StoreCalls


class AppBatches:
    """An application's batches, iterable. ``get`` raises NotFound, all raise StoreUnreachable."""

    def __init__(self, app: StoreCalls) -> None:
        self._app = app

    def get(self, id: str) -> AppBatch:  # noqa: A002  as in PollConsumer.batch
        """A batch that anybody has enqueued, and that is kept: until two days after its end."""
        found = self._app.ask(lambda store: store.batches.status(id))
        return AppBatch(self._app, found.home, found.id, found)

    async def get_async(self, id: str) -> AppBatch:  # noqa: A002  as in PollConsumer.batch
        """`get` without blocking the event loop."""
        found = await self._app.ask_async(lambda store: store.batches.status(id))
        return AppBatch(self._app, found.home, found.id, found)

    def __iter__(self) -> Iterator[AppBatch]:
        for found in self._app.ask_for_each(lambda store: store.batches.batches()):
            yield AppBatch(self._app, found.home, found.id, found)
