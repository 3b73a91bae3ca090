"""``store backup``: a copy of a store in use, from which it can be restored."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.site import wait_until

if TYPE_CHECKING:
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


@pytest.mark.parametrize("file", ["/dev/stdout", "/dev/fd/3"])
def test_a_backup_to_a_device_or_a_pipe_needs_no_room_beside_it_and_is_not_followed_by_its_report(
    site: Site, file: str
) -> None:
    site.enqueue("record", name="a")
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m pollconsumer store backup {file} 3>&1 | cat > kept"],
        cwd=site.directory,
        env=site.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.startswith("pollconsumer: backed up: messages 1, elements ")
    lines = (site.directory / "kept").read_text().splitlines()
    assert json.loads(lines[-1])["end"]["messages"] == 1


def test_a_backup_is_of_the_database_that_the_url_names(site: Site, valkey: Server) -> None:
    url = f"{valkey.url.partition('?')[0]}?db=3"
    assert site.command("--store", url, "enqueue", "record", '{"name": "a"}').returncode == 0
    assert "messages 1" in " ".join(backed_up(site, "--store", url).stdout.split())


def enqueued(site: Site, namespace: str, *names: str) -> None:
    for name in names:
        site.enqueue("record", "--namespace", namespace, name=name)


def lose_all(site: Site) -> None:
    directory = Path(site.command("store", "path").stdout.strip())
    assert site.command("store", "stop").returncode == 0
    shutil.rmtree(directory)


def imported(site: Site, *options: str) -> str:
    done = site.command("store", "import", "kept", *options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def ready(site: Site, namespace: str) -> int:
    shown = json.loads(site.command("--namespace", namespace, "status", "--json").stdout)
    return sum(queue["ready"] for queue in shown["queues"])


def test_the_projects_of_a_user_are_backed_up_together_and_restored_one_or_all(site: Site) -> None:
    enqueued(site, "mail", "a", "b")
    enqueued(site, "shop", "c")
    kept = backed_up(site).stdout
    assert kept.splitlines()[-1].split(maxsplit=1) == ["namespaces", "mail, shop"]
    assert stat.S_IMODE((site.directory / "kept").stat().st_mode) == 0o600
    lose_all(site)
    assert imported(site, "--namespace", "shop").split()[:3] == ["imported", "messages", "1"]
    refused = site.command("--namespace", "mail", "status")
    assert (refused.returncode, "store replaced" in refused.stderr) == (78, True), "it is not restored, and says so"
    enqueued(site, "shop", "d")
    assert imported(site, "--namespace", "mail").split()[:3] == ["imported", "messages", "2"]
    assert (ready(site, "mail"), ready(site, "shop")) == (2, 2), "the other one went on meanwhile"
    lose_all(site)
    assert imported(site).splitlines()[1:] == kept.splitlines()[1:]
    assert (ready(site, "mail"), ready(site, "shop")) == (2, 1)


def test_of_several_namespaces_none_is_touched_where_one_is_not_empty(site: Site) -> None:
    enqueued(site, "mail", "a")
    enqueued(site, "shop", "b")
    backed_up(site)
    lose_all(site)
    assert site.command("--namespace", "shop", "store", "adopt").returncode == 0
    enqueued(site, "shop", "c")
    refused = site.command("store", "import", "kept")
    assert (refused.returncode, "store not empty" in refused.stderr) == (78, True)
    assert site.command("--namespace", "mail", "store", "adopt").returncode == 0
    assert (ready(site, "mail"), ready(site, "shop")) == (0, 1)
    unknown = site.command("store", "import", "kept", "--namespace", "sop")
    assert (unknown.returncode, unknown.stderr) == (
        65,
        "pollconsumer: error: namespace: sop; the backup has mail, shop\n",
    )


def test_a_backup_of_several_that_is_cut_off_between_two_is_none(site: Site) -> None:
    enqueued(site, "mail", "a")
    enqueued(site, "shop", "b")
    backed_up(site)
    lines = (site.directory / "kept").read_text().splitlines(keepends=True)
    second = next(at for at, line in enumerate(lines) if at and '"format"' in line)
    (site.directory / "kept").write_text("".join(lines[:second]))
    lose_all(site)
    refused = site.command("store", "import", "kept")
    assert (refused.returncode, refused.stderr) == (
        65,
        "pollconsumer: error: export cut off: kept; export again; then import that, with --restart\n",
    )
    assert site.command("--namespace", "mail", "status").returncode == 69, "nothing is served of it"
    (site.directory / "kept").write_text("".join(lines))
    imported(site)
    assert (ready(site, "mail"), ready(site, "shop")) == (1, 1)


def test_one_namespace_is_backed_up_where_it_is_named_or_the_server_is_ones_own(site: Site, valkey: Server) -> None:
    enqueued(site, "mail", "a")
    enqueued(site, "shop", "b")
    one = site.command("--namespace", "shop", "store", "backup", "one")
    assert one.stdout.splitlines()[-1].split(maxsplit=1) == ["namespace", "shop, and no other one of the server"]
    for namespace in ("mail", "shop"):
        done = site.command("--store", valkey.url, "--namespace", namespace, "store", "import", "one")
        assert (done.returncode, done.stderr) == (0, ""), "into any that is empty"
    own = backed_up(site, "--store", valkey.url, "--namespace", "mail").stdout
    assert own.splitlines()[-1].split(maxsplit=1) == ["namespace", "mail, and no other one of the server"]


def test_a_file_of_an_earlier_version_which_names_no_namespace_is_restored(site: Site, valkey: Server) -> None:
    site.enqueue("record", name="a")
    backed_up(site, "--namespace", "pollconsumer")
    first, *rest = (site.directory / "kept").read_text().splitlines(keepends=True)
    header = json.loads(first)
    assert header.pop("namespace") == "pollconsumer"
    assert header["version"] == 1
    (site.directory / "kept").write_text("".join([json.dumps(header) + "\n", *rest]))
    assert site.command("--store", valkey.url, "--namespace", "new", "store", "import", "kept").returncode == 0
    assert site.drain("--store", valkey.url, "--namespace", "new").returncode == 0
    assert site.notes() == ["a"]


def test_strict_producers_and_launches_do_not_wait_for_what_is_being_copied(site: Site, valkey: Server) -> None:
    strict = {"POLLCONSUMER_DURABILITY": "strict", "POLLCONSUMER_STORE": valkey.url}
    wire = valkey.wire()
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
