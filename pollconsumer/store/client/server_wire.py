"""One connection to a server: made lazily, and again after a loss or in a child process."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import StoreUnreachable, UsageError
from pollconsumer.store.client.address import CredentialProvider, address_of
from pollconsumer.store.client.connection import Command, Connection, SocketConnection
from pollconsumer.store.client.patience import Patience, left_until
from pollconsumer.store.client.replies import ErrorReply, OutOfTime, Unanswered, raise_if_error, raise_if_thrown
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.scripts import Scripts

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Strict


class ServerWire(Wire):
    def __init__(
        self,
        url: str,
        patience: Callable[[], Patience],
        *,
        revive: Callable[[float], None] | None = None,
        greet: Callable[[Wire], int | None] | None = None,
        connect: Callable[[], Connection] | None = None,
        credentials: CredentialProvider | None = None,
        scripts: Scripts | None = None,
        strict: Strict | None = None,
    ) -> None:
        """``revive`` starts an embedded server, within the given seconds; ``connect`` makes another kind of
        connection; ``credentials`` are asked at each new one of ours. ConfigurationError for an invalid ``url``."""
        super().__init__(url, patience, greet=greet, scripts=scripts, strict=strict)
        self._revive = revive
        self._tls: Mapping[str, str] | None = None
        if connect is None and url.startswith("redis+sentinel:"):
            from pollconsumer.store.client.sentinel import PrimaryConnection, Sentinels  # few stores have Sentinels

            sentinels = Sentinels(url, credentials)
            self._tls, connect = sentinels.login.tls, partial(PrimaryConnection, sentinels, self._bearing)
        elif connect is None:
            address = address_of(url)._replace(credentials=credentials)
            self._tls, connect = address.tls, partial(SocketConnection, address, self._bearing)
        self._make = connect
        self._connection: Connection | None = None
        self._client: int | None = None
        self._abandoned: dict[str, list[int]] = {}
        """Our clients on each server, by the server's ids, that were closed while a command of theirs was
        unanswered."""
        self._pid = 0
        self._greeted = self._awaits = False
        """Whether the server was greeted on the connection, and whether something that was sent is unanswered."""

    def at_rest(self) -> bool:
        return self._connection is None or (self._greeted and not self._awaits)

    def send(self, commands: Sequence[Command]) -> None:
        connection = self._connected()
        self._awaits = True
        try:
            connection.send(commands)
        except OSError as error:
            raise_if_thrown(error)
            self._abandon()
            raise Unanswered(str(error), sent=True) from None

    def receive(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        patience = self._bearing.call or self.patience()
        answers = self._answers(len(commands), patience.for_one_answer(blocking))
        for answer in answers:
            if isinstance(answer, ErrorReply):
                return self._loading(commands, answers, blocking)
        return answers

    def _loading(self, commands: Sequence[Command], answers: list[Any], blocking: float) -> list[Any]:
        """Load the scripts that the server did not know, and run them. Returns ``answers``, with those of these
        scripts. Raises for any other error."""
        loading = False
        for at, answer in enumerate(answers):
            if isinstance(answer, ErrorReply) and str(answer).startswith("NOSCRIPT"):
                loading = True
                script = self.scripts.unknown(commands[at][1])
                self.send([("SCRIPT", "LOAD", script.code), ("EVALSHA", script.sha, *commands[at][2:])])
                loaded, answers[at] = self._answers(2, self._bearing().for_one_answer(blocking))
                raise_if_error(loaded)
        if loading and commands[-1][0] in ("WAIT", "WAITAOF"):
            self.send(commands[-1:])
            answers[-1:] = self._answers(1, self._bearing().for_one_answer(blocking))
        refusals = [at for at, answer in enumerate(answers) if isinstance(answer, ErrorReply)]
        try:
            for at in refusals:
                self._refuse(answers[at], commands[at])
        except Unanswered as unanswered:
            unanswered.sent = len(refusals) < len(answers)
            raise
        return answers

    def raw(self, command: Command, timeout: float) -> Generator[bytes]:
        """Send a command after which the server no longer speaks the protocol, and yield what it sends. The connection
        is closed afterwards. StoreUnreachable if it is lost, or silent for ``timeout`` seconds; UsageError if it is not
        of ours."""
        connection = self._connected()
        if not isinstance(connection, SocketConnection):
            raise UsageError("a client of your own", self.address, "name its server: --store URL")
        try:
            yield from connection.raw(command, timeout)
        except OSError as error:
            raise StoreUnreachable("connection lost", str(error), "try again") from None
        finally:
            self.close()

    def connected_replicas(self) -> int:
        self._connected()
        return self.replicas

    def readable(self, timeout: float) -> bool:
        try:
            return self._connection is None or self._connection.readable(timeout)
        except OSError:
            return True

    def fileno(self) -> int | None:
        return None if self._connection is None else self._connection.fileno()

    def close(self) -> None:
        connection, self._connection, self._client = self._connection, None, None
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection:
        if self._connection is not None:
            if self._pid == os.getpid():
                return self._connection
            self.close()  # the parent's
        try:
            return self._connect()
        except Unanswered:
            if self._revive is None:
                raise
            try:
                self._revive(self._bearing().left())
            except StoreUnreachable as error:
                raise Unanswered(str(error), sent=False) from None
            return self._connect()

    def _connect(self) -> Connection:
        timeout = self._bearing().to_connect()
        if timeout <= 0:
            raise OutOfTime
        connection = self._make()
        self._greeted = False
        try:
            connection.connect(timeout)
        except ErrorReply as reply:
            raise_if_error(reply)
        except OSError as error:
            raise_if_thrown(error)
            self._raise_if_refused(error, established=False)
            raise Unanswered(error.strerror or str(error), sent=False) from None
        self._connection, self._pid, self.place = connection, os.getpid(), connection.place
        try:
            if self.over_network:
                self._close_abandoned()
            if self._greet is not None:
                self.replicas = self._greet(self) or 0
        except BaseException as error:
            refusal = self.misread(error)
            self.close()
            if refusal is not None:
                raise refusal from error
            raise
        self._greeted, self.said = True, None
        return connection

    def _close_abandoned(self) -> None:
        """Close abandoned connections on the server, too: TCP may deliver a command minutes after we gave it up, and
        after it was repeated. A server that refuses this is used all the same."""
        abandoned = self._abandoned.get(self.place, ())  # GUARD clients of another server are left alone
        commands = [("CLIENT", "ID"), *(("CLIENT", "KILL", "ID", client) for client in abandoned)]
        self.send(commands)
        timeout = self._bearing().for_one_answer()
        client, *_ = answers = self._answers(len(commands), timeout)
        for answer in answers:
            if isinstance(answer, ErrorReply) and str(answer).startswith(("NOAUTH", "LOADING")):
                raise_if_error(answer)
        self._client = client if isinstance(client, int) else None
        self._abandoned.pop(self.place, None)

    def _abandon(self) -> None:
        if self._client is not None:
            self._abandoned.setdefault(self.place, []).append(self._client)
        self.close()

    def _answers(self, count: int, timeout: float) -> list[Any]:
        """Read ``count`` answers, each within ``timeout``, and all of them within what patience has left, if that is
        more."""
        connection = self._connection
        if connection is None:
            raise Unanswered("connection lost", sent=True)
        answers: list[Any] = []
        began = monotonic()
        try:
            while len(answers) < count:
                within = timeout
                if monotonic() - began > timeout:
                    within = left_until(began + max(timeout, self._bearing().left()), timeout)
                answers.append(connection.read(within))
            self.said, self._awaits = answers, False
            return answers
        except OSError as error:
            raise_if_thrown(error)
            self._abandon()
            self._raise_if_refused(error, established=True)
            raise Unanswered(str(error), sent=True) from None

    def _raise_if_refused(self, error: OSError, *, established: bool) -> None:
        """Raise for a permanent failure of TLS."""
        if self._tls is not None:
            from pollconsumer.store.client.transport import tls_refusal

            if refusal := tls_refusal(error, self._tls, established=established):
                raise refusal from None
            if not established and isinstance(error, TimeoutError):
                raise Unanswered("timed out: is it a port with TLS?", sent=False) from None
