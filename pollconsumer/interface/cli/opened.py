"""Opens the store for commands other than launches."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import click

from pollconsumer.interface.cli.group import current_settings, wires_of_command
from pollconsumer.interface.cli.output import is_terminal
from pollconsumer.interface.configured_store import opener_of, producer_of
from pollconsumer.interface.logs.logs import warn_of_store
from pollconsumer.interface.settings.owners import (
    own_store,
    user_and_home,
    warn_of_another_store,
    warn_once_of_own_store,
)
from pollconsumer.store.audit_log import acting_as
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.store import Store

COMMAND_BUDGET = 5.0
"""Seconds for which a command retries if the store does not answer."""


def opened(warn: Callable[[str], None] = warn_of_store) -> Store:
    """The store and namespace of the settings, on a connection of its own.

    If a node of a cluster is lost, reads of all queues leave out that node's queues. Then the command ends with an
    error that names those queues."""
    settings = current_settings()
    who = f"{user_and_home()[0]}@{os.uname().nodename}"
    click.get_current_context().find_root().with_resource(acting_as(who))
    wire = opener_of(settings, warn=warn).persons_wire(command_patience)
    wire.skips_lost = True
    wires_of_command().append(wire)
    return Store(wire, settings.namespace, producer_of(settings, wire))


def producer() -> Producer:
    settings = current_settings()
    found = own_store(settings)
    # The user has another store than root's configuration, and is not root.
    if found and not found.is_anothers and found.owner != found.user and is_terminal(sys.stderr):
        warn_once_of_own_store(found, settings.state_files())
    warn_of_another_store(settings)
    return producer_of(settings, opener_of(settings).wire(command_patience))


def command_patience() -> Budget:
    """The patience of a command: how long it repeats a call that the store does not answer."""
    return Budget(COMMAND_BUDGET)
