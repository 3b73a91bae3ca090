"""What people change waits for replicas where ``durability = "strict"``."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from pollconsumer import NotReplicated, PollConsumer, StoreUnreachable
from tests.store.replicated import Pair, Servers, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.site import Site

UNCONFIRMED = "changed, but only 0 of 1 replicas had it within"


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with started() as servers:
        yield servers


@pytest.fixture
def pair(servers: Servers, site: Site) -> Iterator[Pair]:
    pair = Pair(*servers)
    pair.connect()
    site.environment |= {"POLLCONSUMER_STORE": pair.url(), "POLLCONSUMER_DURABILITY": "strict"}
    yield pair
    pair.wire(greeted=False).command("FLUSHALL")
    pair.close()


def refused(site: Site, *command: str) -> None:
    ran = site.command(*command, POLLCONSUMER_STRICT__WITHIN="50ms")
    assert ran.returncode == 69, ran.stderr
    assert UNCONFIRMED in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert ran.stdout == ""


def test_what_is_changed_by_a_command_and_not_confirmed_is_an_error_and_stays(pair: Pair, site: Site) -> None:
    for name in ("one", "two", "three"):
        site.command("enqueue", "record", '{"name": "a"}', "--id", name)
    site.command("recurrences", "add", "each", "record", '{"name": "a"}', "--every", "1h")
    with pair.replica_stopped():
        refused(site, "queue", "pause", "default")
        refused(site, "cancel", "one")
        refused(site, "cancel", "--handler", "record", "--yes")
        refused(site, "recurrences", "pause", "each")
        refused(site, "recurrences", "add", "other", "record", '{"name": "a"}', "--every", "1h")
        refused(site, "recurrences", "trigger", "other")
        refused(site, "recurrences", "remove", "other")
        for reading in (["status"], ["list"], ["recurrences", "list"], ["launches"]):
            assert site.command(*reading).returncode == 0
    for again in (["queue", "pause", "default"], ["cancel", "one"], ["recurrences", "pause", "each"]):
        assert site.command(*again).returncode == 0
    assert "cancelled" in site.command("status", "two").stdout


def test_an_import_does_not_say_that_all_is_there_before_replicas_have_it(pair: Pair, site: Site) -> None:
    export = str(site.directory / "export")
    site.command("enqueue", "record", '{"name": "a"}', "--id", "one")
    with pair.replica_stopped():
        ran = site.command("store", "export", export)
        assert ran.returncode == 69
        assert UNCONFIRMED in ran.stderr
    assert site.command("store", "export", export).returncode == 0
    pair.wire(greeted=False).command("FLUSHALL")
    with pair.replica_stopped():
        ran = site.command("store", "import", export)
    assert ran.returncode == 69
    assert UNCONFIRMED in ran.stderr
    assert "imported" not in ran.stdout + ran.stderr
    assert site.command("store", "import", export).returncode == 0
    assert "one" in site.command("list").stdout


def test_a_right_to_wait_is_missed_by_its_name_before_anything_is_changed(pair: Pair, site: Site) -> None:
    pair.wire(greeted=False).command("ACL", "SETUSER", "some", "on", "nopass", "~*", "+@all", "-wait")
    site.environment["POLLCONSUMER_STORE"] = pair.url().replace("unix://", "unix://some:any@")
    assert "launches cannot start, since the store's user may not run wait;" in site.command("check").stderr
    for command in (["queue", "pause", "default"], ["run", "--until-empty"]):
        ran = site.command(*command)
        assert ran.returncode == 77, ran.stderr
        assert "rights missing: +wait" in ran.stderr
    assert "default" not in site.command("queue", "list").stdout


@pytest.fixture
def program(pair: Pair, tmp_path: Path) -> Callable[[str], PollConsumer]:
    """Makes a program that waits ``within`` a time for the replica."""

    def make(within: str) -> PollConsumer:
        config = tmp_path / f"{within}.toml"
        config.write_text(f'store = "{pair.url()}"\ndurability = "strict"\n[strict]\nwithin = "{within}"\n')
        return PollConsumer(config=config)

    return make


def test_what_a_program_changes_is_an_error_until_the_replica_has_it(
    pair: Pair, program: Callable[[str], PollConsumer]
) -> None:
    patient, app = program("10s"), program("50ms")
    enqueued = patient.handler("record")(lambda: None).enqueue()
    message = app.message(enqueued.id)
    changes: list[Callable[[], object]] = [
        lambda: message.signal("approved", True),
        lambda: asyncio.run(message.signal_async("paid", 7)),
        lambda: app.recurrences.put("each", handler="record", every="1h"),
        lambda: app.messages(state="ready").cancel_all(),
    ]
    for change in changes:
        with pair.replica_stopped(), pytest.raises(StoreUnreachable, match=UNCONFIRMED):
            change()
    with pair.replica_stopped(), pytest.raises(NotReplicated):
        app.recurrences.trigger("each")
    assert enqueued.state == "cancelled"


def test_a_batch_is_not_said_to_be_open_or_closed_before_the_replica_has_it(
    pair: Pair, program: Callable[[str], PollConsumer]
) -> None:
    patient, app = program("10s"), program("2s")
    ended = patient.handler("record")(lambda: None).args()
    with pair.replica_stopped(), pytest.raises(StoreUnreachable, match=UNCONFIRMED):
        app.batch("import", ended=ended).__enter__()
    with (
        ExitStack() as stopped,
        pytest.raises(StoreUnreachable, match=UNCONFIRMED),
        app.batch("import", ended=ended),
    ):
        stopped.enter_context(pair.replica_stopped())
    with patient.batch("import", ended=ended) as again:
        assert again.duplicate
