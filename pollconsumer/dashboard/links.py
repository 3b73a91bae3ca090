"""Addresses of pages, relative to each other: all are in one directory. None stands for a page that there is not."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import urlencode

from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.digests import sha256

STYLE, ICON, SCRIPT = "style.css", "icon.svg", "live.js"
SEPARATOR = "~"
"""The separator of names in a file's name: a name that stands there as it is cannot have one."""
_AS_IT_IS = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
LONGEST_NAME = 1000
"""Characters of an id or a name that has a page."""


class Served:
    """Addresses at a server. No page is about an undecodable name."""

    front = "./"
    search: str | None = "search"
    interventions: str | None = "interventions"

    def past(self, span: str) -> str | None:
        return _query("past", of=span)

    def message(self, queue: str, message_id: str) -> str | None:
        return _query("message", queue=queue, id=message_id)

    def queue(self, name: str, state: State = State.READY, skip: int = 0) -> str | None:
        return _query("queue", name=name, state=state, skip=skip)

    def handler(self, name: str) -> str | None:
        return _query("handler", name=name)

    def dead(self, queue: str | None = None, handler: str | None = None, error: str | None = None) -> str | None:
        given = {"queue": queue, "handler": handler, "error": error}
        return _query("dead", **{name: value for name, value in given.items() if value is not None})

    def batches(self, queue: str, skip: int = 0) -> str | None:
        return _query("batches", queue=queue, skip=skip)

    def batch(self, queue: str, batch_id: str, first: int = 0) -> str | None:
        return _query("batch", queue=queue, id=batch_id, first=first)

    def recurrence(self, name: str) -> str | None:
        return _query("recurrence", name=name)


class Filed:
    """Names of files, as addresses of pages; None for a page that is not among ``pages``, the names of all that are
    written."""

    front = "index.html"
    search: str | None = None
    interventions: str | None = None
    """None: a file does not search, and a web root need not say who did what."""

    def __init__(self, pages: Collection[str]) -> None:
        self._pages = pages

    def message(self, queue: str, message_id: str) -> str | None:
        return self._known(of_message(queue, message_id))

    def queue(self, name: str, state: State = State.READY, skip: int = 0) -> str | None:
        return None if skip else self._known(of_queue(name, state))

    def handler(self, name: str) -> str | None:
        return self._known(of_handler(name))

    def dead(self, queue: str | None = None, handler: str | None = None, error: str | None = None) -> None:
        """Return None: dead letters are selected to act on them, which a file does not."""

    def past(self, span: str) -> None:
        """Return None: it is the whole ledger, which is too much for a launch's end."""

    def batches(self, queue: str, skip: int = 0) -> str | None:
        return None if skip else self._known(of_batches(queue))

    def batch(self, queue: str, batch_id: str, first: int = 0) -> str | None:
        return None if first else self._known(of_batch(queue, batch_id))

    def recurrence(self, name: str) -> str | None:
        return self._known(of_recurrence(name))

    def _known(self, page: str) -> str | None:
        return page if page in self._pages else None


def of_message(queue: str, message_id: str) -> str:
    return _file("message", queue, message_id)


def of_queue(name: str, state: State) -> str:
    return _file("queue", name, state)


def of_handler(name: str) -> str:
    return _file("handler", name)


def of_batches(queue: str) -> str:
    return _file("batches", queue)


def of_batch(queue: str, batch_id: str) -> str:
    return _file("batch", queue, batch_id)


def of_recurrence(name: str) -> str:
    return _file("recurrence", name)


def _query(page: str, **values: object) -> str | None:
    texts = {name: str(value) for name, value in values.items()}
    if any(len(text) > LONGEST_NAME or "\0" in text for text in texts.values()):
        return None
    return f"{page}?{urlencode(texts, errors='replace')}"


def _file(kind: str, *names: str) -> str:
    """A digest takes the place of a name that is none for a file, or whose letters a file system may confuse."""
    plain = all(_AS_IT_IS.fullmatch(name) and name == name.lower() for name in names)
    named = SEPARATOR.join(names) if plain else sha256("\n".join(names).encode("utf-8", "replace"))[:32]
    return f"{kind}-{named}.html"
