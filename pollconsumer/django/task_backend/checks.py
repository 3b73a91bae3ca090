"""System checks of our backend."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from django.core import checks

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.messages.message import check_queue
from pollconsumer.django.task_backend.backend import OF_PRODUCERS, PollConsumerBackend
from pollconsumer.django.task_backend.task import MODULE, OPTIONS, find_tasks
from pollconsumer.interface.api.handler_options import check_options
from pollconsumer.interface.settings.model import Settings


def problems(backend: PollConsumerBackend) -> Iterator[checks.CheckMessage]:
    where = f"TASKS[{backend.alias!r}]"
    yield from _unknown_options(backend, where)
    for queue in sorted(backend.queues):
        try:
            check_queue(queue)
        except PollConsumerError as error:
            yield checks.Error(f"{where}: QUEUES: {error}", id="pollconsumer.E002")
    try:
        check_options({name: value for name, value in backend.handler_options.items() if name in OPTIONS})  # type: ignore[arg-type]  # names of options
    except (PollConsumerError, TypeError) as error:
        yield checks.Error(f"{where}: OPTIONS: {error}", id="pollconsumer.E003")
    try:
        yield from _unserved(backend, backend.settings(), where)
    except PollConsumerError as error:
        yield checks.Error(f"{where}: OPTIONS: {error}", id="pollconsumer.E004")
    try:
        find_tasks()
    except Exception as error:
        hint = f"Importing the modules {MODULE!r} of the installed apps raised this; a launch imports them, too."
        yield checks.Error(f"{type(error).__name__}: {error}", hint=hint, id="pollconsumer.E005")


def _unknown_options(backend: PollConsumerBackend, where: str) -> Iterator[checks.CheckMessage]:
    known = [*OF_PRODUCERS, *OPTIONS]
    for name in sorted(backend.options.keys() - {*known}):
        close = get_close_matches(name, known, n=1)
        hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(known)}."
        yield checks.Error(f"{where}: OPTIONS: unknown option {name}.", hint=hint, id="pollconsumer.E001")


def _unserved(backend: PollConsumerBackend, settings: Settings, where: str) -> Iterator[checks.CheckMessage]:
    """The queues of the backend that no launch of its configuration serves."""
    served = settings.consumer.queues
    for queue in sorted(backend.queues - {*served}) if served else ():
        file = settings.config or "the environment"
        hint = f"Add it to consumer.queues in {file}, or launch 'pollconsumer run --queue {queue}', too."
        yield checks.Warning(
            f"{where}: QUEUES: {queue} is not among consumer.queues.", hint=hint, id="pollconsumer.W001"
        )
