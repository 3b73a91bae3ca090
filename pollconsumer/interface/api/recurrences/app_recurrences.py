"""``app.recurrences``: recurring messages that programs put, change and remove while launches go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from pollconsumer.core.messages.codec import readable_value
from pollconsumer.core.messages.message import Codec
from pollconsumer.interface.api.app_calls import AppCalls
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.recurrences.put_options import NamedPutOptions, PutOptions, encoded_put, new_put
from pollconsumer.store.client.strict import Strict
from pollconsumer.store.recurrences.recurrence_interventions import AT_ONCE, Occurred, Put, Recurrences
from pollconsumer.store.recurrences.recurrence_reader import RecurrenceStatus
from pollconsumer.store.store import Store

T = TypeVar("T")


class AppRecurrences:
    """An application's recurrences; iterable, a page of about 1000 at a time, with those that configurations define.

    A name has at most one. All methods raise StoreUnreachable, and NotFound where there is none of that name; each
    ``…_async`` does the same without blocking an event loop.
    """

    def __init__(self, app: AppCalls) -> None:
        self._app = app

    def put(self, name: str, /, **options: Unpack[PutOptions]) -> None:
        """Add a recurrence, or replace the one of that name.

        Replacing changes only what is different: one that is as it was, or has another payload, keeps its next
        instant; one with another period, cron expression, timezone or ``enabled`` begins again, with ``first``. What is
        due stays due. BadData for an invalid value, or if a configuration defines one of that name.
        """
        self._app.ask(_putting([self._new(name, options)]))

    async def put_async(self, name: str, /, **options: Unpack[PutOptions]) -> None:
        """`put` without blocking the event loop."""
        await self._app.ask_async(_putting([self._new(name, options)]))

    def put_many(self, wanted: Iterable[NamedPutOptions]) -> int:
        """`put` each, some hundreds in a round trip. Returns how many. If it raises, the first of them may be put."""
        put = [self._named(options) for options in wanted]
        for part in _round_trips(put):
            self._app.ask(_putting(part))
        return len(put)

    async def put_many_async(self, wanted: Iterable[NamedPutOptions]) -> int:
        """`put_many` without blocking the event loop."""
        put = [self._named(options) for options in wanted]
        for part in _round_trips(put):
            await self._app.ask_async(_putting(part))
        return len(put)

    def get(self, name: str) -> RecurrenceStatus:
        """The recurrence ``name`` as it stands, even if a configuration defines it."""
        return decoded_status(self._app.ask(lambda store: store.recurrences.find(name)), self._app.codec)

    async def get_async(self, name: str) -> RecurrenceStatus:
        """`get` without blocking the event loop."""
        found = await self._app.ask_async(lambda store: store.recurrences.find(name))
        return decoded_status(found, self._app.codec)

    def remove(self, name: str) -> None:
        """Remove a recurrence with its history. What it has enqueued stays. If a configuration defines it, it comes
        back with the next launch of that configuration."""
        self._app.ask(lambda store: store.recurrences.remove(name))

    async def remove_async(self, name: str) -> None:
        """`remove` without blocking the event loop."""
        await self._app.ask_async(lambda store: store.recurrences.remove(name))

    def pause(self, name: str) -> None:
        """Have a recurrence yield nothing until it is resumed; what would have been due meanwhile is not made up
        for."""
        self._app.ask(_finding(name, Recurrences.pause))

    async def pause_async(self, name: str) -> None:
        """`pause` without blocking the event loop."""
        await self._app.ask_async(_finding(name, Recurrences.pause))

    def resume(self, name: str) -> None:
        """Have a recurrence go on, with its next instant. BadData if it is disabled."""
        self._app.ask(_finding(name, Recurrences.resume))

    async def resume_async(self, name: str) -> None:
        """`resume` without blocking the event loop."""
        await self._app.ask_async(_finding(name, Recurrences.resume))

    def trigger(self, name: str) -> Handle[Any]:
        """Enqueue an occurrence now, beside those of its rule, even if it is paused, disabled or has ended."""
        return self._triggered(*self._app.ask(_triggering(name, self._app.strict())))

    async def trigger_async(self, name: str) -> Handle[Any]:
        """`trigger` without blocking the event loop."""
        return self._triggered(*await self._app.ask_async(_triggering(name, self._app.strict())))

    def history(self, name: str, limit: int = 100) -> list[Occurred]:
        """The recurrence's last occurrences, newest first: at most a hundred, of the last day, as far as their messages
        are kept."""
        return self._decoded(self._app.ask(_looking_back(name, limit)))

    async def history_async(self, name: str, limit: int = 100) -> list[Occurred]:
        """`history` without blocking the event loop."""
        return self._decoded(await self._app.ask_async(_looking_back(name, limit)))

    def __iter__(self) -> Iterator[RecurrenceStatus]:
        """Yield every recurrence. One that is put or removed meanwhile may be missed; one may come twice."""
        return self.select()

    def select(self, *, prefix: str = "", created_by: str | None = None) -> Iterator[RecurrenceStatus]:
        """Yield the recurrences whose names begin with ``prefix``, all or those that ``created_by`` has put."""
        standing = self._app.ask_for_each(lambda store: store.recurrences.standing(lambda _: None, prefix, created_by))
        for found in standing:
            yield decoded_status(found, self._app.codec)

    def _new(self, name: str, options: PutOptions) -> Put:
        handler = options.get("handler", "")
        known = self._app.known(handler, anywhere=options.get("queue") is not None)
        return encoded_put(new_put(name, known, self._app.defaults_of(handler), **options), self._app.codec)

    def _decoded(self, found: list[Occurred]) -> list[Occurred]:
        return [each._replace(message=self._app.decoded(each.message)) for each in found]

    def _named(self, options: NamedPutOptions) -> Put:
        given: Any = dict(options)
        return self._new(given.pop("name", None), given)

    def _triggered(self, message_id: str, queue: str) -> Handle[Any]:
        return Handle(message_id, queue, self._app, duplicate=False)


def decoded_status(found: RecurrenceStatus, codec: Codec | None) -> RecurrenceStatus:
    """``found`` with its payload and its previous result decoded, as far as the codec can."""
    if codec is None:
        return found
    rule, previous = found.recurrence, found.previous
    if rule is not None:
        found = found._replace(recurrence=replace(rule, payload=readable_value(rule.payload, codec)))
    if previous is not None:
        found = found._replace(previous=previous._replace(result=readable_value(previous.result, codec)))
    return found


def _round_trips(put: Sequence[Put]) -> Iterator[Sequence[Put]]:
    for at in range(0, len(put), AT_ONCE):
        yield put[at : at + AT_ONCE]


def _putting(put: Sequence[Put]) -> Callable[[Store], None]:
    return lambda store: store.recurrences.put(put)


def _finding(name: str, act: Callable[[Recurrences, RecurrenceStatus], T]) -> Callable[[Store], T]:
    """The question that finds a recurrence, and does ``act`` to it."""
    return lambda store: act(store.recurrences, store.recurrences.find(name))


def _triggering(name: str, strict: Strict | None) -> Callable[[Store], tuple[str, str]]:
    return _finding(name, lambda store, standing: (store.trigger(standing, strict), standing.queue))


def _looking_back(name: str, limit: int) -> Callable[[Store], list[Occurred]]:
    return _finding(name, lambda store, standing: store.history(standing, limit))
