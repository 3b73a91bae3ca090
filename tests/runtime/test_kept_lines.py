"""What handlers log and print: how much of it is kept, of which message, and when it is told to the store."""

from __future__ import annotations

import logging
import os
import threading
from contextvars import copy_context
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.interface.logs import logs
from pollconsumer.runtime.handling import kept_lines
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.kept_lines import CUT, KeptLines, Tail
from pollconsumer.runtime.handling.slot_waits import IN_SLOT
from pollconsumer.runtime.launch.board import LaunchProgress
from pollconsumer.runtime.session import contexts
from pollconsumer.runtime.session.contexts import LineReports
from pollconsumer.runtime.system.standard_error import HandlersOutput, HandlersStream
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import CommonFields, Reservation
from pollconsumer.store.records.steps import LogEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def reserved(name: str, at: int = 1000) -> Reservation:
    return Reservation(CommonFields("mail", rows.BLANK, "send", b"", 0, at, 0.0), name.encode(), b"")


# The end of what one message has logged


def tail(*texts: str, most: int = 16) -> str:
    kept = Tail(most)
    for text in texts:
        kept.add(text)
    return kept.text()


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["a", "\n", "b\n"], "a\nb\n"),
        (["0123456789abcdef"], "0123456789abcdef"),
        (["0123456789abcdefg"], f"{CUT}123456789abcdefg"),
        (["0123456789", "abcdefghij", "klmnopqrst", "uvwxyz"], f"{CUT}klmnopqrstuvwxyz"),
        (["€" * 6], f"{CUT}{'€' * 5}"),  # 18 bytes: the first character is cut in two
        (["\ud800\x00é"], "\\ud800\x00é"),
    ],
)
def test_the_last_bytes_are_kept_in_whole_characters(texts: Sequence[str], kept: str) -> None:
    assert tail(*texts) == kept


def test_much_text_takes_little_memory() -> None:
    kept = Tail(1024)
    for _ in range(5000):
        kept.add("x" * 100)
    kept.add("y" * 10_000_000)
    assert kept.text() == CUT + "y" * 1024
    assert len(kept._held) <= 3 * 1024  # noqa: SLF001


def test_a_record_begins_on_a_line_of_its_own() -> None:
    kept = Tail(100)
    kept.add("printed")
    kept.add("record\n", is_line=True)
    kept.add("another\n", is_line=True)
    assert kept.text() == "printed\nrecord\nanother\n"


# Which message it belongs to


def keepers() -> list[logging.Handler]:
    return [each for each in logging.getLogger().handlers if isinstance(each, logs._Keeper)]  # noqa: SLF001


@pytest.fixture(autouse=True)
def _no_message() -> Iterator[None]:
    yield
    IN_SLOT.set(None)


@pytest.fixture
def lines() -> Iterator[KeptLines]:
    root = logging.getLogger()
    level = root.level
    logs.keep_lines(1024)
    found = kept_lines.of_process
    assert found is not None
    yield found
    logs.keep_lines(0)
    for handler in keepers():
        root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[HandlersStream]:
    """A standard stream as a launch's handlers have it."""
    with (tmp_path / "out").open("wb") as file:
        output = HandlersOutput(file.fileno(), "wb", closefd=False)
        yield HandlersStream(output, encoding="utf-8", write_through=True)


def test_what_is_logged_outside_of_handlers_is_no_messages(lines: KeptLines, stream: HandlersStream) -> None:
    logging.getLogger("shop").warning("started")
    print("started", file=stream)
    assert lines.tails == {}


def test_records_and_prints_are_kept_in_their_order(lines: KeptLines, stream: HandlersStream, tmp_path: Path) -> None:
    IN_SLOT.set(message := reserved("a"))
    print("one", 2, file=stream)
    logging.getLogger("shop").info("to %s", "ann")
    print("three", file=stream)
    text = (lines.unreported(message) or "").splitlines()
    assert (text[0], text[1][24:], text[2]) == ("one 2", " info shop: to ann", "three")
    assert text[1][:24].endswith("Z")
    assert (tmp_path / "out").read_text() == "one 2\nthree\n", "it is printed all the same"


def test_a_record_that_a_handler_of_logging_prints_is_kept_once(lines: KeptLines, stream: HandlersStream) -> None:
    IN_SLOT.set(message := reserved("a"))
    logger = logging.getLogger("shop.printed")
    logger.addHandler(printing := logging.StreamHandler(stream))
    logger.warning("once")
    logger.removeHandler(printing)
    assert (lines.unreported(message) or "").count("once") == 1


class Drawing(logging.Handler):
    """Writes by way of a console of its own, as that of Rich."""

    def __init__(self, stream: HandlersStream) -> None:
        super().__init__()
        self._write = stream.write

    def emit(self, record: logging.LogRecord) -> None:
        self._print(record.getMessage(), 8)

    def _print(self, text: str, deeper: int) -> None:
        if deeper:
            self._print(text, deeper - 1)
        else:
            self._write(text)


def test_a_record_that_a_handler_prints_by_way_of_other_functions_is_kept_once(
    lines: KeptLines, stream: HandlersStream
) -> None:
    IN_SLOT.set(message := reserved("a"))
    logger = logging.getLogger("shop.drawn")
    logger.addHandler(drawing := Drawing(stream))
    logger.warning("once")
    logger.removeHandler(drawing)
    print("printed", file=stream)
    text = lines.unreported(message) or ""
    assert (text.count("once"), text.count("printed")) == (1, 1)


def test_levels_are_those_of_the_loggers_and_info_by_default(lines: KeptLines) -> None:
    IN_SLOT.set(message := reserved("a"))
    logger = logging.getLogger("shop.levels")
    logger.debug("debug")
    logger.info("info")
    logger.setLevel(logging.ERROR)
    logger.warning("warning")
    logger.setLevel(logging.DEBUG)
    logger.debug("wanted")
    logs.log.error("of the launch")
    logger.propagate = False
    logger.error("kept apart")
    logger.propagate = True
    text = lines.unreported(message) or ""
    assert [line.rpartition(" ")[2] for line in text.splitlines()] == ["info", "wanted"]


def test_an_exception_is_kept_with_its_traceback_and_a_record_that_does_not_fit_is_kept_as_it_is(
    lines: KeptLines,
) -> None:
    IN_SLOT.set(message := reserved("a"))
    logger = logging.getLogger("shop")
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("failed")
    (keeper,) = keepers()
    keeper.handle(logging.LogRecord("shop", logging.WARNING, "", 0, "%d", ("x",), None))
    text = lines.unreported(message) or ""
    assert "error shop: failed\nTraceback (most recent call last):\n" in text
    assert text.splitlines()[-2] == "ValueError: no"
    assert text.endswith("warning shop: %d\n")


def test_a_thread_of_a_handlers_belongs_to_its_message_if_it_has_the_context(lines: KeptLines) -> None:
    IN_SLOT.set(message := reserved("a"))
    for target, said in ((lines.add, "bare"), (copy_context().run, "given")):
        arguments = (said,) if said == "bare" else (lines.add, said)
        thread = threading.Thread(target=target, args=arguments)
        thread.start()
        thread.join()
    assert lines.unreported(message) == "given"


def test_records_are_kept_though_handlers_of_logging_need_their_lock(
    lines: KeptLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from Python 3.13 on."""

    def handle(self: logging.Handler, record: logging.LogRecord) -> None:
        assert self.lock is not None
        with self.lock:
            self.emit(record)

    monkeypatch.setattr(logging.Handler, "handle", handle)
    IN_SLOT.set(message := reserved("a"))
    logging.getLogger("shop").info("to %s", "ann")
    assert (lines.unreported(message) or "").endswith(" info shop: to ann\n")


def test_a_filter_that_users_add_to_all_handlers_of_logging_counts(lines: KeptLines) -> None:
    (keeper,) = keepers()
    keeper.addFilter(lambda record: record.name != "noisy")
    IN_SLOT.set(message := reserved("a"))
    for name in ("noisy", "shop"):
        logging.getLogger(name).info("hello")
    assert [line.partition(" info ")[2] for line in (lines.unreported(message) or "").splitlines()] == ["shop: hello"]


def test_nothing_is_kept_where_nothing_is_to_be(stream: HandlersStream) -> None:
    logs.keep_lines(0)
    IN_SLOT.set(reserved("a"))
    print("x", file=stream)
    assert kept_lines.of_process is None
    assert HandlersStream.printed is None


# When the store is told


class Codec:
    def encode(self, data: bytes) -> bytes:
        if b"secret" in data:
            raise ValueError("secret")
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


class Telling:
    """Reports of lines, of messages that are handled alone unless they are in ``call``."""

    def __init__(self, *, codec: Codec | None = None, most: int = 1024) -> None:
        self.lines, self.flight = KeptLines(most), LaunchProgress().flight
        self.call: list[Reservation] = []
        self.told: list[tuple[bytes, LogEntry, bool]] = []
        handlers = {"send": Handler("send", lambda *_: None, codec=codec)}
        self.reports = LineReports(self.lines, self.flight, handlers, self._reporter(), self._call_of)
        self.lines.begun = bool  # no thread

    def _reporter(self) -> Any:
        def add(_: Reservation, name: bytes, entry: LogEntry, *, soon: bool) -> None:
            self.told.append((name, entry, soon))

        return SimpleNamespace(add=add)

    def _call_of(self, reservation: Reservation) -> list[Reservation]:
        return self.call or [reservation]

    def log(self, message: Reservation, text: str) -> None:
        IN_SLOT.set(message)
        self.lines.add(text)
        IN_SLOT.set(None)


def test_the_end_of_an_attempt_tells_its_lines_with_the_step_and_one_without_lines_tells_nothing() -> None:
    telling, message = Telling(), reserved("a")
    telling.reports.end(message)
    telling.log(message, 'é "x"\n')
    telling.reports.end(message)
    telling.reports.end(message)
    assert telling.told == [(b"a\n1000", LogEntry("[1000,0,", '"é \\"x\\"\\n"', 1024), False)]
    assert telling.lines.tails == {}


def test_what_is_new_is_told_while_the_handler_runs() -> None:
    telling, message = Telling(), reserved("a")
    telling.flight.enter(message, last=False)
    telling.log(message, "one")
    for _ in range(2):
        telling.reports.look()
    telling.log(message, "two")
    telling.reports.look()
    telling.reports.end(message)
    assert [(entry.text, soon) for _, entry, soon in telling.told] == [('"one"', True), ('"onetwo"', True)]


def test_lines_of_a_thread_that_outlives_its_attempt_are_forgotten() -> None:
    telling = Telling()
    telling.log(reserved("a"), "late")
    telling.reports.look()
    assert (telling.told, telling.lines.tails) == ([], {})


def test_the_messages_of_a_bulk_call_share_what_is_kept() -> None:
    telling = Telling(most=2048)
    telling.call = [reserved(name, at) for at, name in enumerate("abcd", 1)]
    telling.log(telling.call[0], "x" * 2000)
    telling.reports.end(telling.call[0])
    assert [(name, entry.head) for name, entry, _ in telling.told] == [
        (f"{name}\n{at}".encode(), f"[{at},0,") for at, name in enumerate("abcd", 1)
    ]
    (text,) = {entry.text for _, entry, _ in telling.told}
    assert text.count("x") == 512


def test_lines_are_encoded_and_never_told_in_plain_text_instead() -> None:
    telling = Telling(codec=Codec())
    for text in ("plain", "secret"):
        telling.log(message := reserved("a"), text)
        telling.reports.end(message)
    encoded, refused = (entry.text for _, entry, _ in telling.told)
    assert "plain" not in encoded
    assert refused == '"[lines left out: the codec raised ValueError]\\n"'


def test_the_first_line_of_a_launch_begins_to_look_and_not_in_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    telling, looked = Telling(), threading.Event()
    begin = telling.reports._begin  # noqa: SLF001
    monkeypatch.setattr(contexts, "LINES_EVERY", 0.0)
    monkeypatch.setattr(telling.reports, "look", looked.set)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 0)
        begin()
    assert telling.reports._thread is None  # noqa: SLF001
    begin()
    assert looked.wait(90)
