"""Dead letters by their errors: the last of them, equal ones together, and steps through all. No payload is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.digests import sha256
from pollconsumer.store.records import rows
from pollconsumer.store.records.id_text import id_bytes, id_text
from pollconsumer.store.server import instant_of, now_ms, readable_queues
from pollconsumer.store.store import Store

AT_ONCE = 100
"""Dead letters that one step looks at."""


class Wanted(NamedTuple):
    """A selection of dead letters: each field that is given must hold. ``error``: its mark, see `mark_of`."""

    queue: str | None = None
    handler: str | None = None
    error: str | None = None


class Letter(NamedTuple):
    """A dead letter, without its payload. ``at``: when it died, in epoch ms."""

    queue: str
    id: str
    handler: str
    error: str
    at: int


class LetterGroup(NamedTuple):
    """Dead letters of one handler with the same error: how many, and the last one."""

    mark: str
    number: int
    last: Letter


class Letters:
    def __init__(self, store: Store) -> None:
        self._wire, self._keys, self._inspector = store.wire, store.keys, store.inspector

    def queues(self, wanted: Wanted) -> list[str]:
        return [wanted.queue] if wanted.queue else readable_queues(self._wire, self._keys)

    def now(self) -> int:
        return now_ms(self._wire)

    def count(self, queues: Sequence[str]) -> int:
        keys = [self._keys.queue(queue, "dead_letters") for queue in queues]
        return sum(self._wire.all([("ZCARD", key) for key in keys])) if keys else 0

    def last(self, wanted: Wanted, count: int) -> list[Letter]:
        """The dead letters wanted among the last ``count``, newest first."""
        queues = self.queues(wanted)
        entries = [(at, queue, each) for queue in queues for at, each in self.entries(queue, -count, -1)]
        ids: dict[str, dict[bytes, int]] = {}
        for at, queue, each in sorted(entries, reverse=True)[:count]:
            ids.setdefault(queue, {})[each] = at
        found = [letter for queue, of_it in ids.items() for letter in self.those(queue, of_it, wanted)]
        return sorted(found, key=lambda letter: letter.at, reverse=True)

    def entries(self, queue: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """The ids of dead letters from the position ``first`` to ``last``, oldest first, each after the instant of its
        death."""
        found = self._wire.command("ZRANGE", self._keys.queue(queue, "dead_letters"), first, last, "WITHSCORES")
        return [(instant_of(at), each) for each, at in zip(found[::2], found[1::2], strict=True)]

    def those(self, queue: str, ids: dict[bytes, int], wanted: Wanted) -> list[Letter]:
        """The dead letters wanted among ``ids``, each with the instant of its death."""
        if not ids:
            return []
        held, errors = self._wire.all([("HMGET", self._keys.queue(queue, key), *ids) for key in ("rows", "errors")])
        bare = [each for each, row in zip(ids, held, strict=True) if not row]
        handlers = {id_bytes(each.id): each.handler for each in self._inspector.those(queue, bare, State.DEAD)}
        found = []
        for (each, at), row, error in zip(ids.items(), held, errors, strict=True):
            handler = rows.read_row(row).handler if row else handlers.get(each, "")
            said = (error or b"").decode("utf-8", "replace").partition(rows.TRACE_FOLLOWS)[0]
            if wanted.handler in (None, handler) and wanted.error in (None, mark_of(said)):
                found.append(Letter(queue, id_text(each), handler, said, at))
        return found


class Sweep:
    """Does ``act`` to all dead letters wanted, a step at a time, oldest first, but to none that dies, or dies again,
    while the sweep lasts. ``act`` takes a queue and ids, and returns the ids of those that it was done to."""

    def __init__(self, letters: Letters, wanted: Wanted, act: Callable[[str, list[str]], list[str]]) -> None:
        self._letters, self._wanted, self._act = letters, wanted, act
        self._queues, self._until = letters.queues(wanted), letters.now()
        self._first = 0
        self.done = self.left = 0

    def step(self) -> bool:
        """Do ``act`` to the next dead letters. Returns whether there may be more."""
        if not self._queues:
            return False
        queue = self._queues[0]
        entries = self._letters.entries(queue, self._first, self._first + AT_ONCE - 1)
        ids = {each: at for at, each in entries if at <= self._until}
        asked = [letter.id for letter in self._letters.those(queue, ids, self._wanted)]
        done = len(self._act(queue, asked))
        self.done += done
        self.left += len(asked) - done
        self._first += len(ids) - done  # letters that were acted on are gone from the list
        if len(ids) < AT_ONCE:
            del self._queues[0]
            self._first = 0
        return bool(self._queues)


def groups_of(letters: Sequence[Letter]) -> list[LetterGroup]:
    """The groups of letters, which are newest first; the largest group first."""
    found: dict[tuple[str, str], LetterGroup] = {}
    for letter in letters:
        known = found.get((letter.handler, letter.error)) or LetterGroup(mark_of(letter.error), 0, letter)
        found[letter.handler, letter.error] = known._replace(number=known.number + 1)
    return sorted(found.values(), key=lambda group: group.number, reverse=True)


def mark_of(error: str) -> str:
    """What stands for an error's text in addresses and forms."""
    return sha256(error.encode("utf-8", "replace"))[:16]
