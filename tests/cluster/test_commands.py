"""Commands of people on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.site import Site

if TYPE_CHECKING:
    from tests.store.servers import Server

COMMANDS = (
    "store adopt", "status", "launches", "list", "queue list", "dead list", "lease show", "recurrences list", "metrics",
    "check", "move --timeout 100ms", "queue pause default", "dashboard --static pages", "store export moved",
    "store reopen --yes",
)  # fmt: skip


def test_commands_that_look_at_everything_work_on_a_cluster(cluster_server: Server) -> None:
    site = Site()
    try:
        site.command("--store", cluster_server.url, "enqueue", "record", '{"name": "a"}')
        for command in COMMANDS:
            done = site.command("--store", cluster_server.url, *command.split())
            assert (done.returncode, done.stderr) == (0, ""), command
    finally:
        site.close()
