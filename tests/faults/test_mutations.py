"""The table of the store's guards holds for the store as it is; and where two cover each other, each is enough."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.message import NewMessage
from pollconsumer.store import rows, scripts
from pollconsumer.store.redis_store import RedisStore
from pollconsumer.store.reservations import Holder
from tests.conftest import NAMESPACE
from tests.faults.mutation_table import MUTATIONS, PAIRS, Edit, Mutation
from tests.faults.mutations import ROOT, edited
from tests.store.acting import HOUR, QUEUE, Launch, Looking, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.store.servers import Server

STORE = ROOT / "pollconsumer" / "store"


@pytest.mark.parametrize("mutation", [*MUTATIONS, *PAIRS], ids=lambda mutation: mutation.name)
def test_what_a_mutation_takes_out_stands_there_once(mutation: Mutation) -> None:
    for edit in mutation.edits:
        text = (STORE / edit.file).read_text()
        assert edited(text, edit) != text


def _an_instant_is_enqueued_once(store: RedisStore) -> bool:
    """Two movers see it come; the message of the first has not ended when the second enqueues its own."""
    look, mover = Looking(store), Holder("mover::0", "1", "mover:")
    store.announce(mover, QUEUE)
    store.wire.command("HSET", look.key("n"), "hourly", "owner\n{}")
    store.wire.command("ZADD", look.key("nz"), HOUR, "hourly")
    record = rows.new_record(NewMessage("", QUEUE, "handler", b"{}"))
    arguments = [mover.lineage, mover.fence, "hourly", HOUR, 2 * HOUR, 0, 0, "hourly@1", HOUR, record]
    script = store.wire.scripts["recur"]
    for _ in range(2):
        store.wire.call(script, store.keys.of_script(script, QUEUE), arguments)
    return look.listed("r") == ["hourly@1"]


def _a_key_of_what_has_ended_is_free(store: RedisStore) -> bool:
    store.enqueue([message("a", key="k")])
    launch = Launch(store)
    launch.complete(*launch.reserve())
    return store.enqueue([message("b", key="k")])[0].id == "b"


HOLDS: dict[str, Callable[[RedisStore], bool]] = {
    "recur: instant compare, and id of the occurrence": _an_instant_is_enqueued_once,
    "unique keys: freed at the end, and no ended holder holds one": _a_key_of_what_has_ended_is_free,
}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_of_two_guards_that_cover_each_other_either_is_enough_and_neither_is_not(
    pair: Mutation, valkey: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (taken_out, holds) in enumerate([(pair.edits[:1], True), (pair.edits[1:], True), (pair.edits, False)]):
        directory = tmp_path / str(number) / "lua"
        _copy_scripts(directory, taken_out)
        monkeypatch.setattr(scripts, "_DIRECTORY", directory)
        store = RedisStore(valkey.wire(), f"{NAMESPACE}-{number}")
        assert HOLDS[pair.name](store) is holds


def _copy_scripts(directory: Path, edits: tuple[Edit, ...]) -> None:
    shutil.copytree(STORE / "lua", directory)
    for edit in edits:
        path = directory.parent / edit.file
        path.write_text(edited(path.read_text(), edit))
