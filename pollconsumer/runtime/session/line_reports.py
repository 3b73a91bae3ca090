"""Stores what handlers log and print: when an attempt ends, and while it runs.

At the end of an attempt this costs no round trip, since the step that settles the message takes it along.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock

from pollconsumer.core.messages.codec import encoded_json
from pollconsumer.core.users_code import described
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.kept_lines import KeptLines, Tail
from pollconsumer.runtime.handling.shield import Shield
from pollconsumer.runtime.launch.board import Flight
from pollconsumer.runtime.session.contexts import ProgressReporter
from pollconsumer.runtime.system.own_threads import Started, start_thread
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.steps import LogEntry

LINES_EVERY = 5.0
"""Seconds between two looks for new lines of running handlers."""
LEAST_OF_CALL = 256
"""Each message of a bulk call gets so many bytes of the call's lines at least."""


class LineReports:
    def __init__(
        self,
        lines: KeptLines,
        flight: Flight,
        handlers: Mapping[str, Handler],
        reporter: ProgressReporter,
        call_of: Callable[[Reservation], Sequence[Reservation]],
    ) -> None:
        """``call_of``: the messages that share a call with a message, including itself."""
        self._lines, self._flight, self._handlers, self._reporter = lines, flight, handlers, reporter
        self._call_of, self._pid = call_of, os.getpid()
        self._lock = Lock()
        self._thread: Started | None = None
        lines.begun = self._begin

    def end(self, reservation: Reservation) -> None:
        """Report the lines of an attempt that has ended."""
        with self._lock:
            if (text := self._lines.news(reservation)) is not None:
                self._report(reservation, text)
            self._lines.tails.pop(reservation, None)

    def look(self) -> None:
        """Report new lines of running handlers. Forget lines of threads that have outlived their attempts."""
        in_flight = set(self._flight.in_flight())
        for message in [*self._lines.tails]:
            with self._lock:
                if not isinstance(message, Reservation) or message not in in_flight:
                    self._lines.tails.pop(message, None)
                elif (text := self._lines.news(message)) is not None:
                    self._report(message, text, soon=True)

    def _begin(self) -> None:
        """Begin to look, unless looks go on already, or a handler has forked this process."""
        if self._thread is None and os.getpid() == self._pid:
            with Shield(), suppress(RuntimeError):  # no thread can be started: lines are stored at the attempts' ends
                self._thread = start_thread("lines", self._serve)

    def _serve(self) -> None:
        while True:
            time.sleep(LINES_EVERY)
            self.look()

    def _report(self, reservation: Reservation, text: str, *, soon: bool = False) -> None:
        messages, most = self._call_of(reservation), self._lines.most
        if len(messages) > 1:
            # All messages of a call together keep about as much as a message that is handled alone.
            part = Tail(max(most // len(messages), LEAST_OF_CALL))
            part.add(text)
            text = part.text()
        told = self._told(text, reservation.handler)
        for each in messages:
            entry = LogEntry(f"[{each.reserved_at},{each.attempt},", told, most)
            self._reporter.add(each, b"%b\n%d" % (each.id, each.reserved_at), entry, soon=soon)

    def _told(self, text: str, handler: str) -> str:
        """``text`` as JSON, encoded if the handler's application has a codec."""
        known = self._handlers.get(handler)
        told = json.dumps(text, ensure_ascii=False)
        try:
            return encoded_json(told.encode(), None if known is None else known.codec).decode()
        except Exception as error:  # it must not be stored in plain text
            return json.dumps(f"[lines left out: the codec raised {described(error).partition(':')[0]}]\n")
