"""What an application does at the beginning and the end of a launch, such as opening and closing a pool."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.users_code import called
from pollconsumer.runtime.handling.hooks import MOST_CHARACTERS, Hooks, hook_timeout, name_of
from pollconsumer.runtime.handling.outcome import described_with_place, trace
from pollconsumer.runtime.system.stray_forks import end_stray


def begin_launch(applications: Iterable[Hooks]) -> Callable[[Callable[[], float]], None]:
    """Call their ``on_launch`` hooks. Returns what calls their ``on_launch_end`` hooks; it is given a function: how
    many seconds the next one has.

    ConfigurationError if one fails: later ones are not called, and the applications before it are ended.
    """
    begun: list[Hooks] = []

    def end(left: Callable[[], float]) -> None:
        while begun:
            begun.pop().call("on_launch_end", within=left)

    pid = os.getpid()
    for hooks in applications:
        for hook in hooks.on_launch:
            failure: BaseException | None = None
            try:
                called(hook)
            except BaseException as error:
                failure = error
            end_stray(pid, failure)
            if failure is not None:
                end(hook_timeout)
                problem = f"it raised {described_with_place(failure, MOST_CHARACTERS)}"
                refusal = ConfigurationError("on_launch", name_of(hook), problem)
                refusal.traced = trace(failure)
                raise refusal from failure
        begun.append(hooks)
    return end
