"""``pollconsumer completion``, and the names of queues, handlers and recurrences that a shell completes.

At each TAB the shell runs the command with `VARIABLE` set. No server is started, and nothing is changed. Names are left
out if the store does not give them at once, or if the module that registers them cannot be imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from itertools import islice
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.interface.cli.launch_command import settings_of
from pollconsumer.interface.cli.output import print_lines
from pollconsumer.interface.cli.types import WordType
from pollconsumer.interface.configured_store import opener_of
from pollconsumer.interface.settings.model import Settings
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.recurrences.recurrence_reader import RecurrenceReader
from pollconsumer.store.server import known_queues

PROGRAM, VARIABLE = "pollconsumer", "_POLLCONSUMER_COMPLETE"
PATIENCE = 0.5
"""Seconds that a person who pressed TAB waits for the store."""
MOST_RECURRENCES = 200
SHELLS = ("bash", "zsh", "fish")


@click.command(epilog="pollconsumer completion bash >> ~/.bashrc")
@click.argument("shell", type=WordType(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and names in a shell.

    \b
    bash: pollconsumer completion bash > ~/.local/share/bash-completion/completions/pollconsumer
    zsh:  pollconsumer completion zsh > "${fpath[1]}/_pollconsumer"
    fish: pollconsumer completion fish > ~/.config/fish/completions/pollconsumer.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    print_lines(found(click.get_current_context().find_root().command, {}, PROGRAM, VARIABLE).source().splitlines())


def complete(command: click.Command, instruction: str) -> int:
    """Answer the shell. Returns the exit code."""
    return shell_complete(command, {}, PROGRAM, VARIABLE, instruction)


def queues(context: click.Context, incomplete: str) -> list[CompletionItem]:
    settings = _settings(context)
    return [] if settings is None else _beginning(incomplete, _queues(settings))


def handlers(context: click.Context, incomplete: str) -> list[CompletionItem]:
    settings = _settings(context)
    return [] if settings is None else _beginning(incomplete, _handlers(settings))


def recurrences(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Recurrences that the store has: commands find no others."""
    settings, names, budget = _settings(context), list[str](), Budget(PATIENCE)
    if settings is not None:
        with suppress(PollConsumerError):
            standing = RecurrenceReader(opener_of(settings).bare_wire(lambda: budget), settings.namespace)
            names.extend(islice(standing.names(incomplete), MOST_RECURRENCES))
    return _beginning(incomplete, names)


def _settings(context: click.Context) -> Settings | None:
    given = context.find_root().params
    with suppress(PollConsumerError):
        return settings_of(given.get("config"), given.get("store"), given.get("namespace"))
    return None


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted({*names}) if name.startswith(incomplete)]


def _queues(settings: Settings) -> Iterator[str]:
    yield from ("default", *settings.queues, *settings.consumer.queues)
    with suppress(PollConsumerError):
        wire = opener_of(settings).bare_wire(lambda: Budget(PATIENCE))
        yield from known_queues(wire, Keys(settings.namespace))


def _handlers(settings: Settings) -> Iterator[str]:
    yield from settings.commands
    from pollconsumer.interface.assembly.handlers import import_handlers

    with suppress(PollConsumerError), Path(os.devnull).open("w") as nowhere:
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            registered = import_handlers(settings)
        yield from registered
