"""The pages as files, for a web server that serves a directory, or a browser that opens a file."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pollconsumer.core.errors import CannotCreate, NotFound
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message_steps import Recorded
from pollconsumer.dashboard.page_reader import Page, PageReader
from pollconsumer.dashboard.pages import ICON, STYLE, Filed, Pages, file_of, static_file
from pollconsumer.interface.named_files import make_directory
from pollconsumer.store.reading.messages import Message

LIST = ".pollconsumer-pages"
"""A file that lists the files written last time, one a line. No other file of the directory is replaced or removed."""
UNFINISHED = ".pollconsumer-unfinished-"
QUEUES, HANDLERS, RECURRENCES, BATCHES = 20, 50, 100, 10
"""How many queues, handlers and recurrences have pages, and how many batches of a queue."""


def write_pages(reading: PageReader, directory: Path) -> None:
    """Write the pages to ``directory``, which is created if its parent exists. CannotCreate if that fails, or if a file
    with a page's name is not ours. A browser sees each page as it was before or as it is now, never half of one."""
    contents = {page: text.encode("utf-8", "backslashreplace") for page, text in _pages(reading)}
    contents |= {name: static_file(name) for name in (STYLE, ICON)}
    try:
        _publish(directory, contents)
    except OSError as error:
        raise CannotCreate("pages", error.filename or directory, f"{error.strerror}: name another directory") from None


def _pages(reading: PageReader) -> Iterator[tuple[str, str]]:
    """Yield each page's name and text. All names are known before the first page is rendered, so that pages link only
    to others that will exist."""
    front = reading.front()
    planned = dict(_planned(reading, front))
    pages = Pages(reading.store.namespace, Filed(planned.keys()))
    for name, (kind, page) in planned.items():
        yield name, pages.page(kind, page, served=False)


def _planned(reading: PageReader, front: Page) -> Iterator[tuple[str, tuple[str, Page]]]:
    """Yield each page's name, its kind, and its content."""
    yield Filed.front, ("front", front)
    shown: list[Message] = [*front.in_flight, *front.schedule]
    for counts in front.overview.queues[:QUEUES]:
        for state in State:
            if state is State.READY or getattr(counts, state):
                queue = reading.queue(counts.name, state, 0)
                yield file_of("queue", counts.name, state), ("queue", queue)
                shown += queue.messages
        listed = reading.batches(counts.name, 0)
        if listed.batches:
            yield file_of("batches", counts.name), ("batches", listed)
        for status in listed.batches[:BATCHES]:
            with suppress(NotFound):  # forgotten in between
                batch = reading.batch(counts.name, status.id)
                yield file_of("batch", counts.name, status.id), ("batch", batch)
                shown += [*batch.dead, *batch.called]
    for name in [*front.handlers][:HANDLERS]:
        handler = reading.handler(name)
        yield file_of("handler", name), ("handler", handler)
        shown += [message for messages in handler.messages.values() for message in messages]
    for each in front.recurrences[:RECURRENCES]:
        with suppress(NotFound):  # removed in between
            recurrence = reading.recurrence(each.name)
            yield file_of("recurrence", each.name), ("recurrence", recurrence)
            shown += [occurred.message for occurred in recurrence.history]
    for message in shown:  # their checkpoints and steps are not read
        page = Page(now=front.now, message=message, checkpoint=None, recorded=Recorded(), batch=message.batch)
        yield file_of("message", message.queue, message.id), ("message", page)


def _publish(directory: Path, contents: Mapping[str, bytes]) -> None:
    make_directory(directory)
    with _locked(directory) as ours:
        if not ours:
            return  # another process is writing the same pages
        before = _written_before(directory)
        for name in contents.keys() - before:
            if os.path.lexists(directory / name):
                raise CannotCreate(
                    f"pages: {name} in", directory, "it is not ours: remove it, or name an empty directory"
                )
        for left in directory.glob(f"{UNFINISHED}*"):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()
        unfinished = directory / f"{UNFINISHED}{os.getpid()}"
        unfinished.mkdir()
        try:
            _replace(directory, unfinished, contents, before)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _replace(directory: Path, unfinished: Path, contents: Mapping[str, bytes], before: set[str]) -> None:
    for name, content in contents.items():
        (unfinished / name).write_bytes(content)
    _note(directory, unfinished, before | contents.keys())  # first: an unlisted file could not be replaced later
    for name in sorted(contents, key=lambda name: name == Filed.front):  # last, after what it links to
        (unfinished / name).replace(directory / name)
    for name in before - contents.keys():
        (directory / name).unlink(missing_ok=True)
    _note(directory, unfinished, contents.keys())


def _note(directory: Path, unfinished: Path, names: Iterable[str]) -> None:
    (unfinished / LIST).write_text("".join(f"{name}\n" for name in sorted(names)), "utf-8")
    (unfinished / LIST).replace(directory / LIST)


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Lock the directory within the block. Yields False if another process has locked it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _written_before(directory: Path) -> set[str]:
    try:
        names = (directory / LIST).read_text("utf-8").split("\n")
    except (FileNotFoundError, UnicodeDecodeError):
        return set()
    return {name for name in names if name and "/" not in name and name not in (".", "..")}
