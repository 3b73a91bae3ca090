"""Places that follow from settings: of the store, and of files that outlive a launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.text import redacted
from pollconsumer.interface.named_files import other_than_directory
from pollconsumer.interface.settings.names import NO_STATE
from pollconsumer.runtime.new_messages import Defaults
from pollconsumer.runtime.system.own_files import EMBEDDED, OwnFiles, data_directory, state_directories


class Placed:
    """What follows from all settings. ``directory`` is where the configuration file ``config`` is, else the current
    directory."""

    def defaults_of(self: Any, handler: str) -> Defaults:
        """The defaults of a handler's messages, for a producer that does not have the handler's code."""
        command = self.commands.get(handler)
        return Defaults() if command is None else Defaults(command.queue, command.rate, command.rate_key)

    @property
    def is_embedded(self: Any) -> bool:
        """Whether the store is the server that pollconsumer starts."""
        return self.store == EMBEDDED and self.client is None

    @property
    def shown_store(self: Any) -> str:
        """The store for people, without a secret."""
        return redacted(self.store) if self.client is None else f"client {self.client}"

    def data_directory(self: Any) -> Path:
        """The embedded server's directory: ``data``, which users share, or one of this user's. CannotCreate without a
        home."""
        return data_directory() if self.data is None else Path(self.directory) / self.data

    def spool_directory(self: Any) -> Path | None:
        """The directory that ``spool`` names; None if it names none."""
        return None if self.spool is None else Path(self.directory) / Path(self.spool).expanduser()

    def server_program(self: Any) -> Path | None:
        """The program that ``server`` names; None if it names none. Whether one is there is not looked at."""
        return None if self.server is None else Path(self.directory) / Path(self.server).expanduser()

    def state_files(self: Any) -> OwnFiles:
        """Files that outlive a launch: below ``state``, else in the user's directories; none, if it is ``none``.
        ConfigurationError if ``state`` is something else than a directory."""
        if self.state is None or self.state == NO_STATE:
            return OwnFiles([] if self.state else state_directories())
        directory = self.directory / Path(self.state).expanduser()
        if (found := other_than_directory(directory)) is not None:
            raise ConfigurationError("state", directory, f"is {found}: name a directory, or {NO_STATE}")
        return OwnFiles([directory])
