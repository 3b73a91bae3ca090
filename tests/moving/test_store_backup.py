"""``store backup``: a copy of a store in use, from which it can be restored."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import closing
from typing import TYPE_CHECKING

from pollconsumer.store.client.server_wire import ServerWire
from tests.site import wait_until

if TYPE_CHECKING:
    import subprocess

    from tests.site import Site
    from tests.store.servers import Server


def backed_up(site: Site, *options: str) -> subprocess.CompletedProcess[str]:
    done = site.command(*options, "store", "backup", "kept")
    assert (done.returncode, done.stderr) == (0, "")
    return done


def leftovers(site: Site) -> list[str]:
    return [each.name for each in site.directory.iterdir() if each.name.startswith((".pollconsumer-", ".kept"))]


def test_a_store_is_restored_as_it_was_while_messages_were_in_hand(site: Site, valkey: Server) -> None:
    site.enqueue("hold", name="a")
    site.enqueue("record", name="b")
    launch = site.start("run", "--until-empty", "--timeout", "60s")
    site.await_note("begin a")
    done = backed_up(site)
    assert done.stdout.split()[:5] == ["backed", "up", "messages", "2", "elements"]
    site.enqueue("record", name="c")
    site.open_gate()
    launch.communicate()
    assert (launch.returncode, site.notes()) == (0, ["begin a", "end a", "b", "c"])
    assert site.command("--store", valkey.url, "store", "import", "kept").returncode == 0
    assert site.drain("--store", valkey.url).returncode == 0
    assert site.notes() == ["begin a", "end a", "b", "c", "begin a", "end a", "b"]
    assert not leftovers(site)


def test_a_backup_goes_through_a_pipe_and_leaves_nothing_behind(site: Site) -> None:
    site.enqueue("record", name="a")
    done = site.command("store", "backup", "-")
    assert json.loads(done.stdout.splitlines()[-1])["end"]["messages"] == 1
    assert (done.returncode, done.stderr[:37]) == (0, "pollconsumer: backed up: messages 1, ")
    refused = site.command("store", "backup", "-", "--json")
    assert refused.returncode == 2


def test_a_backup_is_of_the_database_that_the_url_names(site: Site, valkey: Server) -> None:
    url = f"{valkey.url.partition('?')[0]}?db=3"
    assert site.command("--store", url, "enqueue", "record", '{"name": "a"}').returncode == 0
    assert "messages 1" in " ".join(backed_up(site, "--store", url).stdout.split())


def test_strict_producers_and_launches_do_not_wait_for_what_is_being_copied(site: Site, valkey: Server) -> None:
    strict = {"POLLCONSUMER_DURABILITY": "strict", "POLLCONSUMER_STORE": valkey.url}
    wire = valkey.wire()
    assert isinstance(wire, ServerWire)
    wire.command("SET", "large", os.urandom(4 << 20))  # more than a socket takes in before it is read
    wire.command("REPLCONF", "rdb-only", "1")
    with closing(wire.raw(("SYNC",), 10)) as copying:
        next(copying)
        assert b"connected_slaves:1" in valkey.wire().command("INFO", "replication")
        enqueued = site.command("enqueue", "record", '{"name": "a"}', **strict)
        assert (enqueued.returncode, enqueued.stderr) == (0, "")
        assert site.command("run", "--until-empty", **strict).returncode == 0
    assert site.notes() == ["a"]


def test_a_user_without_the_right_to_a_copy_is_told_which_one(site: Site, valkey: Server) -> None:
    wire = valkey.wire()
    wire.command("ACL", "SETUSER", "keeper", "on", ">secret", "~*", "&*", "+@all", "-sync")
    try:
        url = valkey.url.replace("unix://", "unix://keeper:secret@")
        refused = site.command("--store", url, "store", "backup", "kept")
    finally:
        wire.command("ACL", "DELUSER", "keeper")
    assert refused.returncode == 77
    assert re.fullmatch(
        r"pollconsumer: error: no right to copy the store: NOPERM .*; give the user \+sync, as a replica has it\n",
        refused.stderr,
    )
    assert "secret" not in refused.stderr
    assert not [*site.directory.glob("kept*"), *leftovers(site)]


def test_a_backup_that_is_ended_stops_its_server_and_removes_its_files(site: Site) -> None:
    site.enqueue("record", name="a")
    site.constants = {"READ_WITHIN": 60.0}
    backup = site.start("store", "backup", "kept")
    wait_until(lambda: bool(leftovers(site)), "files of the copy")
    backup.send_signal(signal.SIGTERM)
    backup.communicate()
    assert backup.returncode in (0, 143)
    assert not leftovers(site)


def test_a_backup_that_cannot_be_written_says_so_and_leaves_nothing(site: Site) -> None:
    site.enqueue("record", name="a")
    refused = site.command("store", "backup", "nowhere/kept")
    assert refused.returncode == 73
    assert (
        refused.stderr == "pollconsumer: error: backup: nowhere/kept: No such file or directory; check where it goes\n"
    )
    assert not leftovers(site)
