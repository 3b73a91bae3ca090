"""Finds the primary of a service through its Sentinels: ``redis+sentinel://host:port,host/SERVICE/DATABASE``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from pollconsumer.core.errors import ConfigurationError, PermissionDenied, shown
from pollconsumer.core.notation.text import redacted
from pollconsumer.store.client.address import Address, CredentialProvider, host_and_port, service_of
from pollconsumer.store.client.connection import Command, SocketConnection
from pollconsumer.store.client.patience import Patience, left_until
from pollconsumer.store.client.replies import LOGIN_REFUSED, ErrorReply, raise_if_thrown

ANSWER_WITHIN = 0.5
"""Seconds within which a Sentinel must answer. Each new connection may have to wait so long for one that is away."""
LOOK_EVERY = 1.0
"""Seconds of use between two questions whether the server is still the primary. A replaced primary that is cut off only
from the others notices that ten seconds later. Until then it accepts writes, which will be lost."""
LOOK_AGAIN_AFTER = 5.0
"""Seconds until the next question, after a Sentinel did not answer."""


class Sentinels:
    """The Sentinels of a service. The one that answered last is asked first, over a connection that is kept open. One
    that did not answer is asked last."""

    def __init__(self, url: str, credentials: CredentialProvider | None = None) -> None:
        """``credentials``: for the servers, not for Sentinels. ConfigurationError if ``url`` is invalid."""
        try:
            self._service = service_of(url)
        except ValueError as error:
            raise ConfigurationError("store", redacted(url), str(error)) from None
        self._sentinels = list(self._service.sentinels)
        self._kept: SocketConnection | None = None
        self._pid = 0
        self._look_at = 0.0
        self.login = self._service.primary._replace(credentials=credentials)

    def primary(self, timeout: float) -> Address:
        """The primary's address. ConnectionError if no Sentinel tells it within ``timeout`` seconds. PermissionDenied
        or ConfigurationError if a repetition cannot help."""
        until, silent, refused = time.monotonic() + timeout, list[str](), list[str]()
        failure: OSError | None = None
        for sentinel in tuple(self._sentinels):
            if silent and time.monotonic() >= until:
                break  # the next call begins with the other Sentinels
            location = f"{sentinel.host}:{sentinel.port}"
            try:
                found = self._primary_by(sentinel, left_until(until, ANSWER_WITHIN))
            except OSError as error:
                raise_if_thrown(error)
                silent.append(f"{location}: {error.strerror or error}")
                failure = error
                self._put_last(sentinel)
            except ErrorReply as reply:
                if not str(reply).startswith((*LOGIN_REFUSED, "NOPERM")):
                    raise ConfigurationError("store: no Sentinel", location, f"it says: {reply}") from None
                refused.append(location)
            else:
                if found is not None:
                    self._sentinels.remove(sentinel)
                    self._sentinels.insert(0, sentinel)
                    self._look_at = time.monotonic() + LOOK_EVERY
                    return self.login._replace(host=found[0], port=found[1])
        if silent and failure is not None:
            self._refuse_wrong_tls(self._sentinels[-1], failure)
            raise ConnectionError(f"no Sentinel knows the primary; {', '.join(silent)}") from failure
        if refused:
            fix = "check sentinel_username and sentinel_password of the store's URL"
            raise PermissionDenied("authentication failed: Sentinel", refused[0], fix)
        fix = "no Sentinel knows it: write the name of their line 'sentinel monitor'"
        raise ConfigurationError("store: service", self._service.name, fix)

    @staticmethod
    def _refuse_wrong_tls(sentinel: Address, failure: OSError) -> None:
        """Raise ConfigurationError if TLS can never work with this Sentinel, or if its port speaks TLS and the URL does
        not ask for TLS."""
        hung_up = isinstance(failure, ConnectionResetError)
        if sentinel.tls is None and not hung_up:
            return
        from pollconsumer.store.client.transport import speaks_tls, tls_refusal

        location = f"Sentinel {sentinel.host}:{sentinel.port}"
        if sentinel.tls is not None:
            if refusal := tls_refusal(failure, sentinel.tls, established=False):
                raise ConfigurationError(f"store: {location}: {str(refusal).removeprefix('store: ')}")
        elif speaks_tls(sentinel):
            fix = "give ssl=true, or sentinel_ssl=true if the servers have none"
            raise ConfigurationError("store: TLS", f"{location} speaks it", fix)

    def moved_from(self, address: Address, patience: Callable[[], Patience]) -> bool:
        """Whether the primary is known to be another server than ``address``. A Sentinel is asked once in `LOOK_EVERY`
        seconds; in between, the answer is False."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        try:
            found = self._primary_by(self._sentinels[0], left_until(now + patience().left(), ANSWER_WITHIN))
        except (OSError, ErrorReply, ConfigurationError):
            self._put_last(self._sentinels[0])
            self._look_at = time.monotonic() + LOOK_AGAIN_AFTER
            return False
        self._look_at = time.monotonic() + LOOK_EVERY
        return found is not None and found != (address.host, address.port)

    def _put_last(self, sentinel: Address) -> None:
        self._sentinels.remove(sentinel)
        self._sentinels.append(sentinel)

    def _primary_by(self, sentinel: Address, timeout: float) -> tuple[str, int] | None:
        """Host and port of the primary, as ``sentinel`` tells; None if it knows none. May raise OSError or ErrorReply;
        ConfigurationError if it is no Sentinel."""
        answer = self._ask(sentinel, timeout)
        if answer is None:
            return None
        if (location := host_and_port(answer)) is None:
            raise ConfigurationError(
                "store: no Sentinel", f"{sentinel.host}:{sentinel.port}", f"it says: {shown(answer)}"
            )
        return location

    def _ask(self, sentinel: Address, timeout: float) -> Any:
        until = time.monotonic() + timeout
        connection, self._kept = self._kept, None
        if connection is None or self._pid != os.getpid() or not connection.is_to(sentinel):
            connection = SocketConnection(sentinel)
            connection.connect(timeout)
        found = connection.ask(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service.name), left_until(until))
        self._kept, self._pid = connection, os.getpid()
        return found


class PrimaryConnection(SocketConnection):
    """A connection to the server that was the primary when the connection was opened."""

    def __init__(self, sentinels: Sentinels, patience: Callable[[], Patience]) -> None:
        super().__init__(sentinels.login, patience)
        self._sentinels, self._patience_source = sentinels, patience

    def connect(self, timeout: float) -> None:
        """Connect to the primary. Also raises the errors of `Sentinels.primary`."""
        until = time.monotonic() + timeout
        self._address = self._sentinels.primary(timeout)
        super().connect(left_until(until))
        try:
            role = self.ask(("ROLE",), left_until(until))
            if not isinstance(role, list) or role[:1] != [b"master"]:  # GUARD a replica is not written to
                found = "is a replica" if isinstance(role, list) else f"has no role, but says {shown(role)}"
                raise ConnectionError(f"{self.location} {found}; the Sentinels still name it as the primary")
        except BaseException:
            self.close()
            raise

    def send(self, commands: Sequence[Command]) -> None:
        """Send ``commands``. ConnectionError if the connection is lost, or another server has become the primary."""
        # GUARD a primary that was replaced is left
        if self._sentinels.moved_from(self._address, self._patience_source):
            raise ConnectionError(f"{self.location} is not the primary any more")
        super().send(commands)
