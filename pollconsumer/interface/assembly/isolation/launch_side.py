"""Isolated handlers on the launch's side: the introduction of their processes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from pollconsumer.interface.logs.log_records import identity
from pollconsumer.interface.logs.logs import damped_by, log
from pollconsumer.interface.settings.model import Settings, as_values
from pollconsumer.interface.user_imports import shadowed
from pollconsumer.runtime.children.pool import Processes
from pollconsumer.runtime.handling.handler import Handler


@contextmanager
def isolating(
    handlers: Mapping[str, Handler], settings: Settings, check_lease: Callable[[], bool]
) -> Iterator[Mapping[str, Handler]]:
    """Yield ``handlers``, of which the isolated ones run in processes that end with the block."""
    streaks = damped_by()
    introduction = {
        "shadowed": shadowed(settings),
        "path": sys.path,
        "settings": as_values(settings),
        "directory": str(settings.directory),
        "config": settings.config and str(settings.config),
        "verbosity": {logging.INFO: 1, logging.DEBUG: 2}.get(log.level, 0),
        "quiet": log.level == logging.ERROR,
        "streaks": streaks and {"name": streaks.name, "launch": streaks.launch},
        "identity": identity(),
        "defaults": {name: handler.defaults for name, handler in handlers.items()},
    }
    program = Path(__file__).with_name("child_main.py")
    with closing(Processes(program, introduction, check_lease)) as processes:
        limit = settings.consumer.handler_limit
        timed = {name: each if each.timeout else each.with_timeout(limit) for name, each in handlers.items()}
        yield {**handlers, **processes.around({name: each for name, each in timed.items() if each.isolated})}
