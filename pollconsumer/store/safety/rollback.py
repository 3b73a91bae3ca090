"""Notices a store that went back: a replica was promoted without the last writes, its file was cut, a backup restored.

The store has a mark, which rises with each acquisition, renewal and release of a lease. A process that has seen a
higher mark than the store has now tells it. The heartbeat of a launch compares the marks at each renewal; every process
does when it connects, with the highest mark that it, or an earlier process of this user, has seen. What was lost since
the last renewal no mark shows: the process that wrote it notices, when it connects again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NoReturn, Protocol

from pollconsumer.core.errors import WentBack
from pollconsumer.core.notation.instants import iso
from pollconsumer.store.client.wire import Marks, Wire, Witness
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.producer import REPEAT_WITHIN_MS
from pollconsumer.store.records.id_text import id_text
from pollconsumer.store.records.rows import ENDING
from pollconsumer.store.server import count_of

LIMIT = 1 << 48
"""The limit of marks and fences: six bytes of a row."""
ACCEPT = "see what is missing, then accept it: pollconsumer store adopt"
_REFUSED = "refused: "


class MarkMemo(Protocol):
    """Remembers text outside of the store."""

    def read_marks(self) -> str: ...

    def write_marks(self, text: str) -> None: ...


class Rollback:
    """Notices, for one process, that a store went back, and tells it."""

    def __init__(
        self, namespace: str, memo: MarkMemo, warn: Callable[[str], None], *, refuse: bool, confirmed: bool = False
    ) -> None:
        """``refuse``: raise WentBack, here and in later processes, instead of a warning. ``confirmed``: what is written
        waits for replicas, so only that counts as reached. What is merely read may not be there yet: if it is lost,
        nothing that was acknowledged is."""
        self._keys, self._memo, self._warn, self._refuse = Keys(namespace), memo, warn, refuse
        self._confirmed = confirmed
        self._marks: Marks | None = None
        self.losses = 0
        """How often this process has noticed that the store went back."""

    def remembered(self) -> str:
        """What earlier processes have seen; empty once this one has looked. To be read before the store is asked, since
        a launch that ends meanwhile writes down a mark that the store had not reached then."""
        return "" if self._marks else self._memo.read_marks()

    def look(self, wire: Wire, found: bytes | None, remembered: str) -> None:
        """Look whether the store went back, on a new connection, where this mark was ``found``. Raises WentBack."""
        marks = self._marks or self._read(remembered)
        evidence = wire.evidence
        seen = max(marks.seen, evidence.marks.seen)
        mark = count_of(found)
        reached = min(seen, mark) if self._confirmed else mark  # GUARD what was merely read
        self._marks = evidence.marks = Marks(reached, max(marks.greatest, evidence.marks.greatest, mark))
        if mark < seen:  # GUARD a connection that finds less than was seen
            line = went_back(seen, mark)
        elif evidence.witness is not None and (what := self._missing(wire, evidence.witness)):
            line = f"store rolled back: message {what}; {_may_be_lost(mark)}"
        else:
            return
        evidence.witness = None
        self._tell(line)

    def note(self, wire: Wire) -> None:
        """Remember what was seen, at the end of a launch."""
        if not self._memo.read_marks().startswith(_REFUSED):
            self._write(wire.evidence.marks)

    def refuse(self, line: str) -> NoReturn:
        """Raise WentBack, here and in later processes."""
        self._memo.write_marks(_REFUSED + line)
        raise WentBack(line, None, ACCEPT)

    def _tell(self, line: str) -> None:
        self.losses += 1
        if self._refuse:
            self.refuse(line)
        if self._marks is not None:
            self._write(self._marks)
        self._warn(line)

    def _write(self, marks: Marks) -> None:
        self._memo.write_marks(f"{marks.seen} {marks.greatest}")

    @staticmethod
    def _read(text: str) -> Marks:
        if text.startswith(_REFUSED):
            raise WentBack(text.removeprefix(_REFUSED), None, ACCEPT)
        numbers = [count_of(word.encode()) for word in text.split()]
        return Marks(*numbers) if len(numbers) == len(Marks._fields) and max(numbers) < LIMIT else Marks(0, 0)

    def _missing(self, wire: Wire, witness: Witness) -> str:
        """What of ``witness`` is not so any more; empty if it is, or if it may be forgotten by now."""
        queue, message_id, completed, at = witness
        if (time.monotonic() - at) * 1000 > REPEAT_WITHIN_MS:
            return ""
        key = partial(self._keys.queue, queue)
        record, row, *memories = wire.once(
            [
                ("HEXISTS", key("records"), message_id),
                ("HGET", key("rows"), message_id),
                *(("SISMEMBER", key(memory), message_id) for memory in ("id_memory", "id_memory_before")),
            ]
        )
        name = message_id if isinstance(message_id, str) else id_text(message_id)
        if any(memories) or (row is not None and row[ENDING : ENDING + 1] != b"\0"):
            return ""
        if not record and row is None:  # GUARD a message that is gone
            return f"{name}, which was accepted, is not there"
        return f"{name}, which was completed, would be handled again" if completed else ""


def went_back(seen: int, mark: int) -> str:
    """The line about a store that had ``seen`` a mark and has a lower one; both in epoch ms."""
    return f"store rolled back: it had reached {iso(seen)}; {_may_be_lost(mark)}"


def _may_be_lost(mark: int) -> str:
    since = iso(mark) if mark else "its beginning"
    return f"messages accepted since {since} may be lost, messages completed since then handled again"
