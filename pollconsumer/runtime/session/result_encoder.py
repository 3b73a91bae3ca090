"""Encodes what a completion leaves: the handler's result, and what the message's end brings about."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pollconsumer.core.messages.codec import encoded_json
from pollconsumer.core.messages.message import Codec
from pollconsumer.core.messages.payloads import quick
from pollconsumer.core.news.events import Event, ResultDropped
from pollconsumer.core.users_code import described
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.outcome import why_dropped
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.steps import Extra

MAX_RESULT_BYTES = 64 * 1024
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
            from pollconsumer.runtime.session.ended_messages import Completion  # few messages bring about others

            return Completion(reservation, context, encoded, reservation.server_ms(ended)).extra(kept_for_ms)
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
