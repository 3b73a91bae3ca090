"""Frames between a launch and its handler processes: JSON and not pickle, so that reading one runs no code."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterable
from typing import Any

from pollconsumer.core import errors
from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.payloads import quick
from pollconsumer.core.retry import Asleep, Fatal, RetryIn, Yield, is_deferred, is_fatal
from pollconsumer.core.users_code import text_of
from pollconsumer.runtime.handling.arguments import BadArguments
from pollconsumer.runtime.handling.handler import (
    LOCATION,
    TRACE,
    CallOutcomes,
    Dropped,
    Outcome,
    location,
    trace,
    why_dropped,
)

KINDS: dict[str, type[BaseException]] = {
    "asleep": Asleep,
    "bad_arguments": BadArguments,
    "fatal": Fatal,
    "retry": RetryIn,
    "yield": Yield,
    "plain": Exception,
}
MOST_TEXT = 65_536
"""Maximum characters of an error's text in a frame."""
MOST_BYTES = 32 * 1024**2
"""Maximum bytes of a frame."""


def encode_outcome(
    outcome: Outcome, fatal: tuple[type[BaseException], ...], most: int = MOST_BYTES // 2
) -> dict[str, Any]:
    """An outcome as the fields of a frame. ``fatal``: exceptions after which no retry follows, as after Fatal.
    ``most``: maximum characters of the result."""
    if outcome.error is not None:
        return {"error": encode_error(outcome.error, fatal)}
    if isinstance(outcome.result, CallOutcomes):
        most_each = most // max(1, len(outcome.result))
        return {"each": [encode_outcome(each, fatal, most_each) for each in outcome.result]}
    try:
        encoded = "".join(quick(outcome.result, 0))
    except BaseException:  # raised by classes of the user's
        return {"dropped": why_dropped(outcome.result)}
    fits = len(encoded) < most
    return {"result": encoded} if fits else {"dropped": f"{len(encoded)} characters of JSON, much too long"}


def encode_error(error: BaseException, fatal: tuple[type[BaseException], ...] = ()) -> dict[str, Any]:
    kind = next((name for name, base in KINDS.items() if isinstance(error, base)), "plain")
    if kind == "plain" and is_fatal(error, fatal):
        kind = "fatal"
    return {
        "kind": kind,
        "class": type(error).__name__,
        "text": text_of(error)[:MOST_TEXT],
        "trace": trace(error),
        "location": location(error),
        "seconds": error.seconds if isinstance(error, RetryIn) else None,
        "charged": not is_deferred(error),
        "until": error.until if isinstance(error, Asleep) else None,
    }


def decode_outcome(fields: dict[str, Any]) -> Outcome:
    if "error" in fields:
        return Outcome(decode_error(fields["error"]))
    if "each" in fields:
        return Outcome(result=CallOutcomes(map(decode_outcome, fields["each"])))
    return Outcome(result=Dropped(fields["dropped"]) if "dropped" in fields else json.loads(fields["result"]))


def decode_error(fields: dict[str, Any]) -> BaseException:
    """The exception that ``fields`` describe: one of the handler's process, with its traceback as text."""
    base = KINDS[fields["kind"]]
    kind: Any = base if fields["class"] == base.__name__ else type(fields["class"], (base,), {"__module__": __name__})
    error: BaseException = kind.__new__(kind, fields["text"])
    if isinstance(error, RetryIn):
        error.seconds, error.charged = fields["seconds"], fields["charged"]
    if isinstance(error, Asleep):
        error.until = fields["until"]
    vars(error).update({TRACE: fields["trace"], LOCATION: fields["location"]})
    return error


def encode_refusal(error: PollConsumerError) -> dict[str, str]:
    return {"class": type(error).__name__, "text": str(error)}


def decode_refusal(fields: dict[str, str]) -> PollConsumerError:
    """The launch's error at a handler's request: of the same class if it is ours, else a PollConsumerError."""
    kind = getattr(errors, fields["class"], PollConsumerError)
    error: PollConsumerError = kind.__new__(kind, fields["text"])
    return error


def encode_messages(messages: Iterable[NewMessage]) -> list[dict[str, Any]]:
    return [message._asdict() | {"payload": message.payload.decode()} for message in messages]


def decode_messages(frames: Iterable[dict[str, Any]]) -> list[NewMessage]:
    return [NewMessage(**fields | {"payload": fields["payload"].encode()}) for fields in frames]


class FrameConnection:
    """Sends and receives frames over a socket. Each is a line of JSON. ConnectionError if the socket is closed."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def send(self, frame: dict[str, Any], until: float | None = None) -> None:
        """Send ``frame``. TimeoutError if it is not sent by the instant ``until`` of the monotonic clock."""
        self._socket.settimeout(None if until is None else max(0.001, until - time.monotonic()))
        self._socket.sendall(json.dumps(frame).encode() + b"\n")

    def receive(self, seconds: float | None = None) -> dict[str, Any] | None:
        """The next frame; None if none comes within ``seconds``."""
        until = None if seconds is None else time.monotonic() + seconds
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MOST_BYTES:
                raise ConnectionError("not a frame")
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self._poll.poll(None if left is None else left * 1000):
                return None
            part = self._socket.recv(65536)
            if not part:
                raise ConnectionError("closed")
            self._buffer += part
        line = self._buffer[:end]
        del self._buffer[: end + 1]
        try:
            frame: dict[str, Any] = json.loads(line)
        except (ValueError, RecursionError):
            raise ConnectionError("not a frame") from None
        return frame

    def close(self) -> None:
        self._socket.close()
