"""How often messages are delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer import Context, PollConsumer

if TYPE_CHECKING:
    from pollconsumer.testing import Sandbox


def test_a_message_handled_at_most_once_is_settled_before_another_is_handled(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    unsettled: list[set[str]] = []
    called: set[str] = set()
    store = sandbox.store_of(app)

    def call(context: Context) -> None:
        in_flight = store.wire.command("ZRANGE", store.keys.queue("default", "in_flight"), 0, -1)
        unsettled.append(called & {each.decode() for each in in_flight})
        if context.handler == "once":
            called.add(context.id)

    @app.handler("plain")
    def plain(context: Context) -> None:
        call(context)

    @app.handler("once", delivery="at_most_once")
    def once(context: Context) -> None:
        call(context)

    for handler in [plain] * 2 + [once] * 9 + [plain] * 3:
        handler.enqueue()
    sandbox.run()
    assert unsettled == [set()] * 14
