"""Files of messages that could not reach the store, and what a launch makes of them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import CannotCreate, PermissionDenied, StoreUnreachable
from pollconsumer.core.events import SpoolFileRefused, SpoolUnusable
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.runtime import spool as spooling
from pollconsumer.runtime.spool import Intake, Spool, SpooledFile
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, chosen, message
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.events import Event
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", NAMESPACE)


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def intake(spool: Spool, store: RedisStore, told: list[Event]) -> Intake:
    return Intake(spool, store.producer, told.append)


def waiting(spool: Spool) -> list[str]:
    """The names of its files but the lock's."""
    return sorted(each.name for each in spool.directory.iterdir() if not each.name.endswith("lock"))


def ready(store: RedisStore, queue: str = QUEUE) -> list[str]:
    return [each.decode() for each in store.wire.command("LRANGE", store.keys.queue(queue, "ready"), 0, -1)]


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def forget_all(store: RedisStore, queue: str = QUEUE) -> None:
    """As when everything has ended so long ago that no id is remembered."""
    names = ["ready", "rows", "records", "id_memory", "id_memory_before"]
    store.wire.command("DEL", *(store.keys.queue(queue, name) for name in names))


def test_a_spooled_message_is_taken_in_with_all_its_options(spool: Spool, intake: Intake, inspector: Inspector) -> None:
    options = {"priority": 3, "concurrency": "c", "limit": 2, "headers": {"a": "b"}, "rate_key": "r", "rate": "1/1m"}
    given = message("a", payload=b'{"x":"\xc3\xbc"}', **options)._replace(timeout=2.5, max_attempts=7)  # type: ignore[arg-type]
    spool.put([given])
    intake.look()
    found = inspector.message("a", QUEUE)
    assert (found.payload, found.headers, found.priority, found.state) == ({"x": "ü"}, {"a": "b"}, 3, "ready")
    assert waiting(spool) == []


def test_messages_are_taken_in_in_the_order_in_which_they_were_spooled(
    spool: Spool, intake: Intake, store: RedisStore
) -> None:
    spool.put([message("a"), message("b"), message("x", queue="other"), message("c")])
    assert len(waiting(spool)) == 3  # one file for each run of a queue
    spool.put([message("d")])
    intake.look()
    assert (ready(store), ready(store, "other")) == (["a", "b", "c", "d"], ["x"])


def fstat_in_a_container(descriptor: int) -> os.stat_result:
    """In containers of one image, copies of a file have one inode, on a device for each container."""
    found = list(os.fstat(descriptor))
    directory = Path(f"/proc/self/fd/{descriptor}").readlink().parent
    found[stat.ST_INO], found[stat.ST_DEV] = 1, int(directory.name == "copy")
    return os.stat_result(found)


@pytest.mark.parametrize("fstat", [os.fstat, fstat_in_a_container])
def test_what_a_copy_of_the_spool_sends_is_not_taken_for_what_the_first_one_sent(
    spool: Spool,
    intake: Intake,
    store: RedisStore,
    monkeypatch: pytest.MonkeyPatch,
    fstat: Callable[[int], os.stat_result],
) -> None:
    monkeypatch.setattr(spooling, "os", SimpleNamespace(**{**vars(os), "fstat": fstat}))
    spool.put([message("a")])
    intake.look()
    copy = Spool(spool.directory.parent / "copy", NAMESPACE)
    shutil.copytree(spool.directory, copy.directory)
    spool.put([message("b")])
    intake.look()
    half_an_hour_ago(monkeypatch)
    copy.put([message("c")])
    Intake(copy, store.producer, lambda event: pytest.fail(str(event))).look()
    assert (ready(store), waiting(copy)) == (["a", "b", "c"], [])


MINUTE = 60_000


def half_an_hour_ago(monkeypatch: pytest.MonkeyPatch) -> int:
    """Have producers believe that it is so early; the true instant, in epoch ms."""
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now - HOUR // 2 * 1_000_000)
    return now // 1_000_000


def test_delay_and_expiry_count_from_the_instant_of_spooling(
    spool: Spool, intake: Intake, store: RedisStore, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = half_an_hour_ago(monkeypatch)
    spool.put([message("a", delay=HOUR), message("b", expires=HOUR), message("c", expires=HOUR // 4)])
    monkeypatch.undo()
    intake.look()
    behind = -server_ms(store.wire) + time.time_ns() // 1_000_000  # the server's clock, beside this machine's
    delayed, *expiring = (inspector.message(message_id, QUEUE) for message_id in ("a", "b", "c"))
    assert delayed.row.timestamps.due_at == now + HOUR // 2
    first, second = (epoch_ms(each.expires_at) + behind for each in expiring if each.expires_at is not None)
    assert now + HOUR // 2 - MINUTE < first < now + HOUR
    assert now - MINUTE < second < now + HOUR // 4


def test_a_file_that_was_sent_and_not_removed_makes_no_second_message_however_late(
    spool: Spool, intake: Intake, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.put([message("a"), message("b")])
    monkeypatch.setattr(Spool, "remove", interrupt)
    with pytest.raises(KeyboardInterrupt):
        intake.look()
    monkeypatch.undo()
    assert (ready(store), len(waiting(spool))) == (["a", "b"], 1)
    forget_all(store)
    intake.look()
    assert (ready(store), waiting(spool)) == ([], [])


def test_a_copy_of_the_directory_that_is_put_back_loses_no_later_message(
    spool: Spool, intake: Intake, store: RedisStore
) -> None:
    spool.put([message("a")])
    intake.look()
    lock = next(spool.directory.glob("*lock"))
    before = lock.read_bytes()
    spool.put([message("b")])
    intake.look()
    lock.write_bytes(before)
    spool.put([message("c")])
    intake.look()
    assert ready(store) == ["a", "b", "c"]


def test_a_clock_that_is_set_back_loses_no_later_message(
    spool: Spool, intake: Intake, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.put([message("a")])
    intake.look()
    half_an_hour_ago(monkeypatch)
    spool.put([message("b")])
    intake.look()
    assert ready(store) == ["a", "b"]


@pytest.mark.parametrize("content", [b"", b"rubbish", b"1 2\n"])
def test_a_ledger_that_cannot_be_read_is_begun_anew(
    spool: Spool, intake: Intake, store: RedisStore, content: bytes
) -> None:
    spool.put([message("a")])
    intake.look()
    next(spool.directory.glob("*lock")).write_bytes(content)
    spool.put([message("b")])
    intake.look()
    assert ready(store) == ["a", "b"]


def test_what_others_have_in_the_directory_is_left_alone(spool: Spool, intake: Intake, store: RedisStore) -> None:
    spool.put([message("a")])
    other = Spool(spool.directory, "another")
    other.put([message("b")])
    (spool.directory / "README").write_text("mine")
    intake.look()
    assert ready(store) == ["a"]
    assert other.state().waiting == 1
    assert (spool.directory / "README").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it was not written by a producer"),
        (b"[" * 100_000, "it was not written by a producer"),
        (b"[]", "it was not written by a producer"),
        (b'[{"id": "a"}]', "it was not written by a producer"),
        (b'[{"id": "a", "queue": "q", "handler": "h", "payload": 1}]', "it was not written by a producer"),
        (b'[{"id": "a", "queue": "q", "handler": "h", "payload": "{}", "new": 1}]', "a newer version wrote it"),
    ],
)
def test_a_file_that_no_producer_wrote_is_set_aside_and_told_once(
    spool: Spool, intake: Intake, store: RedisStore, told: list[Event], content: bytes, reason: str
) -> None:
    spool.put([message("good")])
    bad = spool.directory / f"{NAMESPACE}@1234567890123456-0123456789abcdef"
    bad.write_bytes(content)
    intake.look()
    intake.look()
    aside = bad.with_name(f"{bad.name}.refused")
    (refusal,) = told
    assert isinstance(refusal, SpoolFileRefused)
    assert (refusal.file, refusal.reason.partition(": ")[0]) == (str(aside), reason)
    assert aside.read_bytes() == content
    assert (ready(store), spool.state().refused) == (["good"], 1)


def test_a_link_is_not_followed(spool: Spool, intake: Intake, told: list[Event], tmp_path: Path) -> None:
    spool.put([message("a")])
    (file,) = spool.directory.iterdir()
    secret = file.rename(tmp_path / "secret")
    file.symlink_to(secret)
    intake.look()
    assert [type(each) for each in told] == [SpoolFileRefused]


def test_a_message_whose_id_belongs_to_another_is_kept_and_told_and_those_beside_it_are_taken_in(
    spool: Spool, intake: Intake, store: RedisStore, told: list[Event]
) -> None:
    store.enqueue([chosen("b", b'{"n":1}')])
    spool.put([message("a"), chosen("b", b'{"n":2}'), message("c")])
    intake.look()
    (refused,) = waiting(spool)
    assert refused.endswith(".refused")
    assert told == [SpoolFileRefused(str(spool.directory / refused), "b has another handler or payload")]
    assert ready(store) == ["b", "a", "c"]


def test_what_is_set_aside_is_taken_in_once_a_person_names_it_back(
    spool: Spool, intake: Intake, store: RedisStore
) -> None:
    spool.put([message("a")])
    (file,) = spool.directory.iterdir()
    content = file.read_bytes()
    file.write_bytes(b"torn")
    intake.look()
    (aside,) = (spool.directory / name for name in waiting(spool))
    aside.write_bytes(content)
    aside.rename(str(aside).removesuffix(".refused"))
    intake.look()
    assert (ready(store), waiting(spool)) == (["a"], [])


def test_files_of_a_queue_that_refuses_one_wait_behind_it_and_others_are_taken_in(
    spool: Spool, intake: Intake, store: RedisStore, told: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    for message_id, queue in (("a", "odd"), ("b", QUEUE), ("c", "odd"), ("d", QUEUE)):
        spool.put([message(message_id, queue=queue)])
    enqueue = store.producer.enqueue

    def refuse(messages: list[NewMessage], origin: Any) -> Any:
        if messages[0].id == "a":
            raise PermissionDenied("a is refused")
        return enqueue(messages, origin)

    monkeypatch.setattr(store.producer, "enqueue", refuse)
    intake.look()
    intake.look()
    assert (ready(store), ready(store, "odd"), len(waiting(spool))) == (["b", "d"], [], 2)
    assert [type(each) for each in told] == [SpoolUnusable]
    monkeypatch.undo()
    intake.look()
    assert (ready(store, "odd"), waiting(spool)) == (["a", "c"], [])


def fail_once(monkeypatch: pytest.MonkeyPatch, name: str, error: int) -> None:
    """Have the first call of ``os.name`` for a numbered file raise ``error``."""
    call, errors = getattr(os, name), [error]

    def do(*given: Any) -> Any:
        if "+" in str(given[0]) and errors:
            raise OSError(errors.pop(), "failed once", str(given[0]))
        return call(*given)

    monkeypatch.setattr(os, name, do)


@pytest.mark.parametrize("error", [errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE])
def test_a_file_that_cannot_be_read_for_a_moment_is_not_lost(
    spool: Spool,
    intake: Intake,
    store: RedisStore,
    told: list[Event],
    monkeypatch: pytest.MonkeyPatch,
    error: int,
) -> None:
    for name in "abc":
        spool.put([message(name)])
    fail_once(monkeypatch, "open", error)
    intake.look()
    assert (ready(store), len(waiting(spool)), [type(each) for each in told]) == ([], 3, [SpoolUnusable])
    intake.look()
    assert (ready(store), waiting(spool)) == (["a", "b", "c"], [])


def test_a_file_that_cannot_be_set_aside_for_a_moment_is_not_lost(
    spool: Spool, intake: Intake, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        spool.put([message(name)])
    fail_once(monkeypatch, "open", errno.EACCES)
    fail_once(monkeypatch, "rename", errno.EROFS)
    intake.look()
    intake.look()
    assert (ready(store), waiting(spool)) == (["a", "b"], [])


@pytest.mark.parametrize("error", [errno.EIO, errno.EBADMSG])
def test_a_damaged_file_is_set_aside_and_those_behind_it_are_taken_in(
    spool: Spool, intake: Intake, store: RedisStore, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    for name in "ab":
        spool.put([message(name)])
    fail_once(monkeypatch, "open", error)
    intake.look()
    assert (ready(store), spool.state().refused) == (["b"], 1)


def test_a_launch_begins_while_the_store_takes_long_for_what_was_spooled(
    spool: Spool, intake: Intake, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.put([message("a")])
    enqueue, asked, answers = store.producer.enqueue, threading.Event(), threading.Event()

    def slowly(*given: Any) -> Any:
        asked.set()
        answers.wait(5.0)
        return enqueue(*given)

    monkeypatch.setattr(store.producer, "enqueue", slowly)
    intake.begin()
    try:
        assert asked.wait(5.0)
        assert (intake.taken_in.is_set(), ready(store)) == (False, [])
        answers.set()
        assert intake.taken_in.wait(5.0)
        assert (ready(store), waiting(spool)) == (["a"], [])
    finally:
        intake.end()


def test_only_one_takes_in_at_a_time(spool: Spool, intake: Intake, store: RedisStore) -> None:
    spool.put([message("a")])
    with Spool(spool.directory, NAMESPACE).taken():
        intake.look()
    assert ready(store) == []
    intake.look()
    assert ready(store) == ["a"]


def test_a_directory_that_others_may_write_is_refused(spool: Spool, intake: Intake, told: list[Event]) -> None:
    spool.put([message("a")])
    spool.directory.chmod(0o777)
    with pytest.raises(PermissionDenied, match="spool is writable by others"):
        spool.put([message("b")])
    intake.look()
    assert [type(each) for each in told] == [SpoolUnusable]


def test_a_shared_directory_has_files_for_its_group(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", NAMESPACE, shared=True)
    spool.put([message("a")])
    with spool.taken():
        pass
    assert spool.directory.stat().st_mode & 0o7777 == 0o2770
    assert {each.stat().st_mode & 0o777 for each in spool.directory.iterdir()} == {0o660}
    assert Spool(spool.directory, NAMESPACE).state().waiting == 1  # its bit says that it is shared


def test_a_full_spool_says_so_and_takes_nothing_more(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "MOST_FILES", 2)
    spool.put([message("a")])
    with pytest.raises(StoreUnreachable, match="spool full: 2 files in") as caught:
        spool.put([message("b"), message("x", queue="other")])
    assert caught.value.accepted == ["b"]
    assert spool.state().waiting == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_said_in_one_line(spool: Spool) -> None:
    spool.put([message("a")])
    spool.directory.chmod(0o500)
    with pytest.raises(PermissionDenied, match="spool is not writable"):
        spool.put([message("b")])


def test_a_file_where_the_directory_should_be_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "spool").touch()
    with pytest.raises(CannotCreate, match="spool is not a directory"):
        Spool(tmp_path / "spool", NAMESPACE).put([message("a")])


def test_a_disk_that_is_full_leaves_nothing_and_names_what_was_kept(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.put([message("a")])
    before = waiting(spool)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotCreate, match=r"No space left on device$"):
        spool.put([message("b")])
    assert waiting(spool) == before


def fail_to_sync_directories(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    fsync = os.fsync

    def sync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(error, os.strerror(error))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_sync_a_directory_has_a_spool(
    spool: Spool, intake: Intake, store: RedisStore, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    fail_to_sync_directories(monkeypatch, error)
    spool.put([message("a")])
    intake.look()
    assert (ready(store), waiting(spool)) == (["a"], [])


def test_what_counts_as_not_spooled_leaves_no_file(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_sync_directories(monkeypatch, errno.EIO)
    with pytest.raises(CannotCreate):
        spool.put([message("a")])
    assert waiting(spool) == []


def test_what_a_producer_left_that_died_while_it_wrote_is_removed_after_an_hour(spool: Spool) -> None:
    spool.put([message("a")])
    old, new = (spool.directory / f".{NAMESPACE}@{name}" for name in ("old", "new"))
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    spool.clear()
    assert (old.exists(), new.exists(), spool.state().waiting) == (False, True, 1)


def test_a_file_is_data(spool: Spool) -> None:
    spool.put([NewMessage("a", "q", "os.system", b'{"x":1}')])
    (file,) = spool.directory.iterdir()
    assert json.loads(file.read_bytes()) == [{"id": "a", "queue": "q", "handler": "os.system", "payload": '{"x":1}'}]


def test_a_directory_among_the_temporary_names_is_said_and_keeps_no_other(
    spool: Spool, intake: Intake, told: list[Event]
) -> None:
    spool.put([message("a")])
    for name in ("a", "b"):
        (spool.directory / f".{NAMESPACE}@{name}").mkdir()
    left = spool.directory / f".{NAMESPACE}@left"
    left.touch()
    for odd in spool.directory.glob(f".{NAMESPACE}@*"):
        os.utime(odd, (1.0, 1.0))
    intake.end()
    intake._serve()  # noqa: SLF001  what the thread does first
    assert [type(each) for each in told] == [SpoolUnusable]
    assert not left.exists()


@pytest.mark.parametrize("odd", ["file", "link", "nowhere", "pipe"])
def test_what_is_in_the_place_of_the_directory_ends_no_thread(
    store: RedisStore, told: list[Event], tmp_path: Path, odd: str
) -> None:
    place = tmp_path / "spool"
    if odd == "file":
        place.touch()
    elif odd == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(place if odd == "link" else tmp_path / "missing")
    intake = Intake(Spool(place, NAMESPACE), store.producer, told.append)
    intake.look()
    intake.look()
    intake.end()
    intake._serve()  # noqa: SLF001
    assert [type(each) for each in told] == ([] if odd == "nowhere" else [SpoolUnusable])


@pytest.mark.parametrize("odd", ["directory", "pipe", "link", "empty"])
def test_what_is_no_file_of_messages_is_set_aside_and_those_behind_it_are_taken_in(
    spool: Spool, intake: Intake, store: RedisStore, told: list[Event], odd: str
) -> None:
    spool.put([message("a")])
    place = spool.directory / f"{NAMESPACE}@{1:016d}-{1:016x}"
    if odd == "directory":
        place.mkdir()
    elif odd == "pipe":
        os.mkfifo(place)
    elif odd == "link":
        place.symlink_to("/")
    else:
        place.touch()
    intake.look()
    assert ready(store) == ["a"]
    assert [type(each) for each in told] == [SpoolFileRefused]
    assert [path.name for path, *_ in spool.refused()] == [f"{place.name}.refused"]


def test_a_file_that_cannot_be_moved_holds_up_no_other(
    spool: Spool, intake: Intake, store: RedisStore, told: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        spool.put([message(name)])

    def refuse(_: object, file: SpooledFile) -> None:
        raise PermissionError(1, "Operation not permitted", file.name)

    monkeypatch.setattr(Spool, "remove", refuse)
    intake.look()
    intake.look()
    assert ready(store) == ["a", "b"]
    assert [type(each) for each in told] == [SpoolUnusable]
