"""Encodes what a completion leaves: the handler's result, and what the message's end brings about."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.codec import encoded_json
from pollconsumer.core.messages.message import Codec, NewMessage
from pollconsumer.core.messages.payloads import quick
from pollconsumer.core.news.events import Event, ResultDropped
from pollconsumer.core.users_code import described
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import why_dropped
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.steps import Extra

if TYPE_CHECKING:
    from pollconsumer.store.queues.batches import NewBatch

MAX_RESULT_BYTES = 64 * 1024
RESULTS_KEPT_MS = 48 * 3600 * 1000
"""Time for which results of members are kept at least, for the callbacks of their batch."""
_SCALARS: dict[type, Callable[[Any], str]] = {int: int.__repr__, str: json.encoder.encode_basestring}
"""The functions by which the encoder writes text and whole numbers, called without the encoder."""


class ResultEncoder:
    def __init__(self, handlers: Mapping[str, Handler], emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._codecs = {name: each.codec for name, each in handlers.items() if each.codec is not None}

    def extra_of(
        self, reservation: Reservation, kept_for_ms: int, context: LaunchContext | None, result: Any, ended: float
    ) -> Extra | None:
        """What the message's completion leaves, if anything."""
        encoded, sequel = b"", reservation.lot.sequel
        if result is not None and (kept_for_ms > 0 or sequel):
            try:
                scalar = _SCALARS.get(type(result))
                encoded = (scalar(result) if scalar else "".join(quick(result, 0))).encode()
            except BaseException:  # the user's classes may raise, or the user's threads modify it concurrently
                self._drop(reservation, why_dropped(result)[:200])
            if len(encoded) > MAX_RESULT_BYTES:
                self._drop(reservation, f"{len(encoded)} bytes of JSON, {MAX_RESULT_BYTES} at most")
                encoded = b""
            if encoded and (codec := self._codecs.get(reservation.handler)):
                encoded = self._coded(reservation, encoded, codec)
        if sequel or (context is not None and context.leaves):
            return full_extra(reservation, context, encoded, reservation.server_ms(ended), kept_for_ms)
        return (kept_for_ms, encoded, b"", b"") if encoded else None

    def _coded(self, reservation: Reservation, result: bytes, codec: Codec) -> bytes:
        """A result, encoded by the codec; empty if that raises: in plain text it must not be stored."""
        try:
            return encoded_json(result, codec)
        except Exception as error:
            self._drop(reservation, f"the codec raised {described(error)}")
            return b""

    def _drop(self, reservation: Reservation, reason: str) -> None:
        self._emit(ResultDropped(reservation.name, reservation.handler, reason))


def full_extra(
    reservation: Reservation, context: LaunchContext | None, result: bytes, at: int, kept_for_ms: int
) -> Extra | None:
    """What the completion leaves, ``at`` an instant of the server, in epoch ms, of a message that may bring about
    others: its encoded ``result``, what is enqueued next, and what its batch is told."""
    from pollconsumer.core.messages.sequel import decoded  # few messages bring about others
    from pollconsumer.store.queues.outbox_entry import pack, told_of_member

    following: list[NewMessage] = []
    opened: list[NewBatch] = []
    added, told = 0, b""
    if context is not None:
        following, opened, added = [*context.enqueued], context.batches(), context.added
    if stored := reservation.lot.sequel:
        sequel, _ = decoded(stored)
        told_next = json.loads(result) if result else None
        following += sequel.following(reservation.name, reservation.queue, State.COMPLETED, at, told_next)
        if sequel.ends_member(State.COMPLETED):
            told = told_of_member(sequel.batch, added)
            kept_for_ms = kept_for_ms and max(kept_for_ms, RESULTS_KEPT_MS)  # GUARD results of members are kept
        elif sequel.batch:  # its id is the member's: its result would be taken for that of the chain
            kept_for_ms = 0
    outgoing = pack(following, at, opened) if following or opened else b""
    kept = result if kept_for_ms else b""
    return (kept_for_ms, kept, outgoing, told) if kept or outgoing or told else None
