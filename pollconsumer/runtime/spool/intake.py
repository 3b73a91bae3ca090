"""Takes spooled messages in, each once, whoever dies when.

A file is an entry of an outbox, in a directory instead of a queue. It gets its number before it is first sent, all are
sent in the order of their numbers, and each queue remembers the last one that it received: so whoever finds a file that
somebody had begun to take in sends it again, however late. A file is removed once its messages are accepted.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from pollconsumer.core.errors import NodeLost, PollConsumerError, StoreUnreachable
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.news.events import Event, SpoolFileRefused, SpoolUnusable
from pollconsumer.runtime.spool.spool import Spool, SpooledFile, Unreadable
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.producer import Origin, Producer

LOOK_EVERY = 1.0
OF_THE_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that no file can be read with."""


class Intake:
    def __init__(self, spool: Spool, producer: Producer, emit: Callable[[Event], None]) -> None:
        self._spool, self._producer, self._emit = spool, producer, emit
        self._ended = threading.Event()
        self._told = set[str]()

    def begin(self) -> None:
        """Take in what waits, and go on with that in a thread until `end`."""
        self.look()
        with suppress(RuntimeError):  # no thread can be started: the next launch takes in what comes
            start_thread("spool", self._serve)

    def end(self) -> None:
        self._ended.set()

    def _serve(self) -> None:
        self._attempt(self._spool.clear)
        while not self._ended.wait(LOOK_EVERY):
            self.look()

    def look(self) -> None:
        """Take in what waits."""
        self._attempt(self._take_in)

    def _attempt(self, act: Callable[[], object]) -> None:
        """Do ``act``. What cannot be done now is left for the next look, and told once."""
        try:
            act()
        except StoreUnreachable:
            pass
        except (PollConsumerError, OSError) as error:  # GUARD an odd directory ends no thread
            self._tell(error)

    def _take_in(self) -> None:
        """Send all files, in order. Those of a queue that refuses one wait behind it: sent before it, they would make
        it one that the queue has received."""
        if not self._spool.waits():
            return
        blocked = set[str]()
        with self._spool.taken() as files:
            for file in files:
                if self._ended.is_set():
                    return
                try:
                    self._take(file, blocked)
                except OSError as error:
                    if error.errno in OF_THE_PROCESS:
                        raise
                    self._tell(error)  # GUARD a file that cannot be moved or removed holds up no other

    def _take(self, file: SpooledFile, blocked: set[str]) -> None:
        try:
            messages = self._spool.read(file)
        except Unreadable as problem:
            self._refuse(file, str(problem))
            return
        queue = messages[0].queue
        if queue in blocked or not self._send(file, messages):
            blocked.add(queue)

    def _send(self, file: SpooledFile, messages: Sequence[NewMessage]) -> bool:
        """Whether the messages are accepted."""
        origin, conflicts = Origin(f"spool-{file.sender}", file.number, 0), list[str]()
        try:
            outbox.send_alone(self._producer, origin, messages, lambda message_id, _: conflicts.append(message_id))
        except NodeLost:
            return False
        except StoreUnreachable:
            raise
        except PollConsumerError as error:
            self._tell(error)
            return False
        # GUARD removed once it is accepted
        if conflicts:
            self._refuse(file, f"{', '.join(conflicts)} has another handler or payload")
        else:
            self._spool.remove(file)
        return True

    def _refuse(self, file: SpooledFile, reason: str) -> None:
        self._emit(SpoolFileRefused(str(self._spool.directory / self._spool.refuse(file)), reason))

    def _tell(self, problem: PollConsumerError | OSError) -> None:
        """Tell a problem once, and that of many files with one of them."""
        kind = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
        if kind not in self._told:
            self._told.add(kind)
            self._emit(SpoolUnusable(str(self._spool.directory), str(problem)))
