"""Processes of isolated handlers, as actors that can be killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pollconsumer.core.retry import ProcessDied
from pollconsumer.runtime.children.pool import LONGEST_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pollconsumer.runtime.handling.context import LaunchContext
    from pollconsumer.runtime.handling.handler import Handler
    from tests.simulation.hosts.process import Process


def around(process: Process, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
    """``handlers``, with each call of an isolated one in a child of ``process``, like ``Processes.around``.

    They must not call the store: a real child asks its launch to.
    """
    return {name: _isolated(process, each) if each.isolated else each for name, each in handlers.items()}


def _isolated(process: Process, handler: Handler) -> Handler:
    def run(payload: dict[str, Any], context: LaunchContext | None) -> Any:
        ended: list[Callable[[], Any]] = []
        launch = process.world.running
        assert launch is not None

        def live() -> None:
            try:
                result = handler.run(payload, context)
            except Exception as error:
                ended.append(_raising(error))
            else:
                ended.append(lambda: result)
            launch.wake()

        child = process.start_child(f"{process.name}'s child", live)
        while not ended and child.alive:
            process.pause(LONGEST_WAIT)
        if not ended:
            raise ProcessDied("killed")
        return ended[0]()

    return handler._replace(run=run)


def _raising(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail
