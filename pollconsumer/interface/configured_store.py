"""Opens the store and the spool that the settings name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from pollconsumer.core.errors import (
    CannotCreate,
    ConfigurationError,
    NotReplicated,
    PollConsumerError,
    StoreRefused,
    StoreUnreachable,
)
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.interface.logs.logs import UNDAMPED, log, warn_of_store
from pollconsumer.interface.named_files import open_regular
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.owners import refuse_writable_program
from pollconsumer.interface.user_imports import client_of, credentials_of
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.runtime.system.own_files import OwnFiles
from pollconsumer.runtime.system.process import why_not_run
from pollconsumer.store.client.address import TLS_FILES, CredentialProvider
from pollconsumer.store.client.wire import Strict, Wire
from pollconsumer.store.queues.demand import LaunchDemand
from pollconsumer.store.queues.producer import Producer, StrictProducer

if TYPE_CHECKING:
    from pollconsumer.runtime.embedded.server import EmbeddedServer
    from pollconsumer.runtime.spool import Spool
    from pollconsumer.store.user_client import SuppliedClient
NOT_SPOOLED = "; not spooled: "


def strict_of(settings: Settings) -> Strict | None:
    """The replicas or files that calls wait for; None if they do not wait. Calls never wait with the embedded server,
    which has written to disk before it answers."""
    if settings.durability != "strict" or settings.is_embedded:
        return None
    return Strict(settings.strict.replicas, settings.strict.within, settings.strict.aof)


def server_of(settings: Settings) -> EmbeddedServer:
    """The embedded server of the settings, even if they name another store."""
    from pollconsumer.runtime.embedded.server import EmbeddedServer  # many stores are not embedded

    return EmbeddedServer(
        settings.data_directory(),
        named=settings.data is not None,
        program=server_program_of(settings),
        durability=settings.durability,
    )


def server_program_of(settings: Settings) -> Path | None:
    """The program that the settings name for the embedded server; None if they name none. ConfigurationError if other
    users may write it."""
    program = settings.server_program()
    if program is None or settings.trust_writable:
        return program
    if not why_not_run(program):  # otherwise its start says why
        refuse_writable_program(program, "server's program")
    return program


def program_to_start(settings: Settings) -> str | None:
    """The program that would be started as embedded server, to show it. None if none is found, or if the settings name
    another store. ConfigurationError if the settings name a program that cannot be used."""
    if not settings.is_embedded:
        return None
    from pollconsumer.runtime.embedded.start import find_program  # only to show it

    named = server_program_of(settings)
    try:
        return find_program(named)
    except StoreRefused:
        return None  # a server that another user has started may be running


def producer_of(settings: Settings, wire: Wire) -> Producer:
    """A producer that, by the settings, waits for replicas, starts launches, and respects limits of queues."""
    strict = strict_of(settings)
    if strict is None:
        producer = Producer(wire, settings.namespace)
    else:
        producer = StrictProducer(wire, settings.namespace, strict)
    producer.most_ready = most_ready(settings)
    if settings.consumer.on_demand is not None:
        from pollconsumer.interface.on_demand import start_launch  # producers start few launches

        producer.demand = LaunchDemand(producer.keys, settings.consumer.queues, partial(start_launch, settings))
    return producer


def most_ready(settings: Settings) -> dict[str, int]:
    """Queue → how many of its messages may be ready, for each queue with this limit."""
    return {name: each.max_ready for name, each in settings.queues.items() if each.max_ready is not None}


def _refuse_unfit_files(store: str) -> None:
    """Raise ConfigurationError if a file that TLS reads is no plain file, such as a pipe, where reading would wait. A
    missing file is left to TLS, which refuses it."""
    for option, (path, *_) in parse_qs(urlsplit(store).query).items():
        if option in TLS_FILES and option != "ssl_ca_path":
            try:
                os.close(open_regular(Path(path)))
            except (FileNotFoundError, PermissionError):
                continue
            except OSError as error:
                raise ConfigurationError(f"store: {option}", path, f"{error.strerror}: name a file") from None


def opener_of(
    settings: Settings,
    files: OwnFiles | None = None,
    warn: Callable[[str], None] = warn_of_store,
    client: Callable[[], SuppliedClient] | None = None,
) -> StoreOpener:
    """An object that opens connections when they are needed. ``files`` and ``client`` replace those of the settings.
    ``warn`` is called with warnings about the store."""
    credentials: Callable[[], CredentialProvider] | None = None
    if settings.client is not None or settings.credentials is not None:
        if settings.credentials is not None:
            credentials = partial(credentials_of, settings)
        elif client is None:
            client = partial(client_of, settings)
    files = files or settings.state_files()
    if "ssl_" in settings.store:
        _refuse_unfit_files(settings.store)
    server = server_of(settings) if settings.is_embedded and client is None else None
    if server is not None and settings.data is not None:
        server.check_directory()  # before a connection to its socket
    return StoreOpener(
        client or server or settings.store,
        settings.namespace,
        warn,
        files,
        strict_of(settings),
        log=partial(log.warning, "%s", extra=UNDAMPED),
        refuse_rollback=settings.strict.on_rollback == "refuse",
        credentials=credentials,
    )


def spool_of(settings: Settings) -> Spool:
    """The spool that the settings name."""
    from pollconsumer.runtime.embedded.directory import modes_of  # few settings name a spool
    from pollconsumer.runtime.spool import Spool

    directory = settings.spool_directory()
    assert directory is not None
    shared = settings.data is not None and modes_of(settings.data_directory()).shared
    return Spool(directory, settings.namespace, shared=shared)


def spool_instead(settings: Settings, messages: Sequence[NewMessage], error: StoreUnreachable | CannotCreate) -> None:
    """Spool messages that could not be enqueued because of ``error``. A message that was enqueued after all is
    recognised by its id. If not all can be spooled, ``error`` is raised: its text ends with the reason, its
    ``accepted`` with the ids of the spooled messages. NotReplicated is raised unchanged."""
    if isinstance(error, NotReplicated):
        raise error
    if any(message.key for message in messages):
        error.args = (f"{error}{NOT_SPOOLED}only the store knows who has a unique key",)
        raise error
    try:
        spool_of(settings).put(messages)
    except (PollConsumerError, OSError) as refusal:
        error.accepted = [*error.accepted, *getattr(refusal, "accepted", ())]
        error.args = (f"{error}{NOT_SPOOLED}{refusal}",)
        raise error from refusal
