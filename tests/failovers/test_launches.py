"""A launch whose primary is replaced while it has a message in flight."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.producer import Producer
from tests.failovers import kinds
from tests.failovers.servers import Trio, await_true
from tests.store.acting import message

if TYPE_CHECKING:
    from tests.site import Site

NAMESPACE = "pollconsumer"


@pytest.mark.parametrize("watched", [True, False], ids=["with Sentinels", "at an address that leads to the primary"])
def test_it_settles_on_the_new_primary_and_goes_on(watched: bool, site: Site) -> None:
    trio = Trio(proxied=not watched, watched=watched)
    try:
        first = message("first", handler="hold", queue="default", payload=b'{"name":"first"}')
        others = [
            message(f"m{n}", handler="record", queue="default", payload=b'{"name":"%d"}' % n, priority=1)
            for n in range(5)
        ]
        Producer(Wire(trio.url, lambda: Budget(30.0)), NAMESPACE).enqueue([first, *others])
        checked = json.loads(site.command("check", "--json", POLLCONSUMER_STORE=trio.url).stdout)
        assert checked["primary"] == (trio.primary().place if watched else None)
        launch = site.start("run", "--until-empty", "--timeout", "1h", POLLCONSUMER_STORE=trio.url)
        site.await_note("begin first")
        await_true(trio.in_step)
        if watched:
            kinds.replaced(trio, lambda: trio.primary().kill())
        else:
            kinds.unwatched(trio)
        site.open_gate()
        assert launch.wait(60) == 0
        assert sorted(site.notes()) == ["0", "1", "2", "3", "4", "begin first", "end first"]
        left = Producer(Wire(trio.url, lambda: Budget(30.0)), NAMESPACE).enqueue([first])
        assert [entry.duplicate for entry in left] == [True]
    finally:
        trio.close()
