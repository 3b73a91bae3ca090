"""One connection to the server: repetitions, within a caller's patience, and exceptions that say what to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import PollConsumerError, StoreUnreachable
from pollconsumer.core.message import NewMessage
from pollconsumer.core.notation.redaction import redacted
from pollconsumer.store.connecting.address import address_of
from pollconsumer.store.connecting.connection import Command, Connection, SocketConnection
from pollconsumer.store.connecting.patience import Patience
from pollconsumer.store.connecting.replies import ErrorReply, OutOfTime, Unanswered, raise_if_error
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.scripts import Script, Scripts

if TYPE_CHECKING:
    from pollconsumer.store.connecting.strict import Strict

Witness = NewMessage | tuple[str, str | bytes, bool, float]
"""The last message that was acknowledged to a caller: a new one, which was accepted; or queue and id, whether it was
completed, or else accepted, and when, on the monotonic clock."""


class Wire:
    """A connection that is made lazily, and made again after a loss or in a child process."""

    of_cluster = False

    def __init__(
        self,
        url: str,
        patience: Callable[[], Patience],
        *,
        revive: Callable[[float], None] | None = None,
        greet: Callable[[Wire], object] | None = None,
        connect: Callable[[], Connection] | None = None,
        scripts: Scripts | None = None,
        strict: Strict | None = None,
    ) -> None:
        """``revive`` starts an embedded server, within the given seconds; ``greet`` checks each new connection, and
        raises if the server must not be used; ``connect`` makes another kind of connection. ``strict``: what a script
        changed counts as unanswered until it is confirmed."""
        self.address = redacted(url)
        self.patience = patience
        self.scripts = Scripts() if scripts is None else scripts
        self._revive, self._greet, self.strict = revive, greet, strict
        self._tls: Mapping[str, str] | None = None
        if connect is None:
            self._tls, connect = _connections(url, self._bearing)
        self._make = connect
        self.over_network = not url.startswith(("unix:", "memory:"))
        self._connection: Connection | None = None
        self._client: int | None = None
        self.place = ""
        """Of the last server that was connected to: host and port, or a path."""
        self._abandoned: dict[str, list[int]] = {}
        """By server, our clients there, by its ids, that were closed while a command of theirs was unanswered."""
        self._pid = 0
        self._call: Patience | None = None
        """The patience of the call that is under way, which may need several answers."""
        self.repeated = False
        """Whether the last call was sent more than once."""
        self._problem = "no time is left to connect"
        """Why there was no answer, the last time."""
        self.rights: tuple[str, ...] = () if strict is None else (strict.right,)
        """Those that it needs beside its caller's."""
        self.replicas = 0
        """The number of the server's replicas when it was greeted."""
        self.mark = self.greatest = 0
        """The store's mark as it was last seen, and the greatest one that is known: see ``rollback.py``."""
        self.witness: Witness | None = None
        self.skips_lost = False
        """Whether `readable_queues` leaves out queues whose node of a cluster is lost; these are then ``unread``."""
        self.unread: set[str] = set()
        self.apart: Sequence[str] = ()
        """A key of each queue that is not to wait for the node of another: see `part`."""

    def _bearing(self) -> Patience:
        return self._call or self.patience()

    def call(self, script: Script | str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run an idempotent script, and repeat it after a lost answer."""
        return self.all([self.script(script, keys, args)])[0]

    def run(self, name: str, keys: Keys, queue: str, args: Sequence[Any]) -> Any:
        """`call` for the script ``name`` and its keys of ``queue``."""
        script = self.scripts[name]
        return self.call(script, keys.of_script(script, queue), args)

    def command(self, *arguments: str | bytes | float) -> Any:
        """Run one idempotent command, and repeat it after a lost answer."""
        return self.all([arguments])[0]

    def script(self, script: Script | str, keys: Sequence[str], args: Sequence[Any]) -> tuple[Any, ...]:
        """The command that runs a script, for `all` and `once`."""
        if isinstance(script, str):
            script = self.scripts[script]
        return ("EVALSHA", script.sha, len(keys), *keys, *args)

    def all(
        self,
        commands: Sequence[Command],
        *,
        mend: Callable[[], object] | None = None,
        blocking: float = 0.0,
        parting: bool = True,
    ) -> list[Any]:
        """The answers to commands sent in one write, repeated until patience ends; then StoreUnreachable.

        One of them may block for ``blocking`` seconds. ``mend`` is called before each repetition, to undo what the last
        call may have done. ``parting``: raise NodeLost where `part` does; otherwise wait for a lost node of a cluster.
        """
        outer = self._call
        patience = self._call = outer or self.patience()
        pause = 0.02
        sent = self.repeated = False
        try:
            while True:
                try:
                    if mend and self.repeated:
                        mend()
                        self.repeated = True
                    return self.once(commands, blocking=blocking)
                except Unanswered as unanswered:
                    self.close()
                    self.repeated = True
                    sent = sent or unanswered.sent
                    if patience.left() <= 0:
                        error = StoreUnreachable("store unreachable", self.address, f"it says: {unanswered}")
                        error.sent = sent
                        raise error from None
                    if parting:
                        self.part(commands)
                except StoreUnreachable as error:
                    error.sent = error.sent or sent
                    raise
                patience.pause(pause)
                pause = min(1.0, pause * 2)
        finally:
            self._call = outer

    def once(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        """The answers to commands sent in one write, one of which may block for ``blocking`` seconds.

        Raises Unanswered if there is none. Closes the connection then, and when an exception that is none of ours
        interrupts it, as Ctrl-C does, so that no late reply is taken for another's.
        """
        try:
            if self.strict is not None and any(command[0] == "EVALSHA" for command in commands):
                from pollconsumer.store.connecting.strict import confirmed  # few launches wait for replicas

                return confirmed(self, self.strict, commands, blocking)
            self.send(commands)
            return self.receive(commands, blocking=blocking)
        except OutOfTime:
            raise Unanswered(self._problem, sent=False) from None
        except Unanswered as unanswered:
            self._problem = str(unanswered)
            raise
        except PollConsumerError:
            raise
        except BaseException:
            self._abandon()
            raise

    def send(self, commands: Sequence[Command]) -> None:
        connection = self._connected()
        try:
            connection.send(commands)
        except OSError as error:
            self._abandon()
            raise Unanswered(str(error), sent=True) from None

    def receive(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        """Answers to what `send` sent; scripts unknown to the server are loaded and run again, before a WAIT at the
        end."""
        answers = self._answers(len(commands), self._bearing().for_one_answer(blocking))
        for answer in answers:
            if isinstance(answer, ErrorReply):
                return self._loading(commands, answers, blocking)
        return answers

    def _loading(self, commands: Sequence[Command], answers: list[Any], blocking: float) -> list[Any]:
        """``answers``, with those of the scripts that the server did not know; raises for another error."""
        loading = False
        for at, answer in enumerate(answers):
            if isinstance(answer, ErrorReply) and str(answer).startswith("NOSCRIPT"):
                loading = True
                script = next(s for s in self.scripts.values() if s.sha == commands[at][1])
                self.send([("SCRIPT", "LOAD", script.code), commands[at]])
                loaded, answers[at] = self._answers(2, self._bearing().for_one_answer(blocking))
                raise_if_error(loaded)
        if loading and commands[-1][0] in ("WAIT", "WAITAOF"):
            self.send(commands[-1:])
            answers[-1:] = self._answers(1, self._bearing().for_one_answer(blocking))
        refusals = [answer for answer in answers if isinstance(answer, ErrorReply)]
        try:
            for refusal in refusals:
                self._refuse(refusal)
        except Unanswered as unanswered:
            unanswered.sent = len(refusals) < len(answers)
            raise
        return answers

    def _refuse(self, reply: ErrorReply) -> None:
        """Raise for an error reply. A key of another type may be that of a store that was closed since it was greeted:
        what greets knows more."""
        greet = self._greet
        if greet is not None and "WRONGTYPE" in str(reply):
            self._greet = None
            try:
                greet(self)
            finally:
                self._greet = greet
        raise_if_error(reply)

    def connected_replicas(self) -> int:
        """Connects first if need be."""
        self._connected()
        return self.replicas

    def readable(self, timeout: float) -> bool:
        """Whether an answer arrives within ``timeout`` seconds. A lost connection is readable: `receive` raises."""
        try:
            return self._connection is None or self._connection.readable(timeout)
        except OSError:
            return True

    def servers(self) -> Sequence[Wire]:
        """Connections to every server that has some of the keys."""
        return [self]

    def lost_servers(self) -> Sequence[Wire]:
        """Those of the nodes of a cluster that do not answer."""
        return []

    def lost(self, keys: Collection[str]) -> set[str]:  # noqa: ARG002  all of them are on one server
        """Those of ``keys`` whose node of a cluster does not answer, while that with the leases does."""
        return set()

    def part(self, commands: Sequence[Command]) -> None:
        """Called after they were not answered. NodeLost, on a cluster, if some of them need a node that is lost, while
        the leases and some of the keys that are `apart` are on others."""

    def fileno(self) -> int | None:
        """The descriptor to wait on, or None."""
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
        try:
            connection.connect(timeout)
        except ErrorReply as reply:
            raise_if_error(reply)
        except OSError as error:
            self._raise_if_refused(error, established=False)
            raise Unanswered(error.strerror or str(error), sent=False) from None
        self._connection, self._pid, self.place = connection, os.getpid(), connection.place
        try:
            if self.over_network:
                self._close_abandoned()
            if self._greet is not None:
                self._greet(self)
        except BaseException:
            self.close()
            raise
        return connection

    def _close_abandoned(self) -> None:
        """Close abandoned connections on the server, too: TCP may deliver a command minutes after we gave it up, and
        after it was repeated. A server that refuses this is used all the same."""
        abandoned = self._abandoned.get(self.place, ())
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
        """Close a connection with unanswered commands."""
        if self._client is not None:
            self._abandoned.setdefault(self.place, []).append(self._client)
        self.close()

    def _answers(self, count: int, timeout: float) -> list[Any]:
        connection = self._connection
        if connection is None:
            raise Unanswered("connection lost", sent=True)
        try:
            return [connection.read(timeout) for _ in range(count)]
        except OSError as error:
            self._abandon()
            self._raise_if_refused(error, established=True)
            raise Unanswered(str(error), sent=True) from None

    def _raise_if_refused(self, error: OSError, *, established: bool) -> None:
        """Raise for a permanent failure of TLS."""
        if self._tls is not None:
            from pollconsumer.store.connecting.transport import tls_refusal

            if refusal := tls_refusal(error, self._tls, established=established):
                raise refusal from None
            if not established and isinstance(error, TimeoutError):
                raise Unanswered("timed out: is it a port with TLS?", sent=False) from None


def _connections(
    url: str, patience: Callable[[], Patience]
) -> tuple[Mapping[str, str] | None, Callable[[], Connection]]:
    """The options of TLS, None without it, and a function that makes connections. ConfigurationError for an invalid
    ``url``."""
    if url.startswith("redis+sentinel:"):
        from pollconsumer.store.connecting.sentinel import Sentinels  # few stores have them

        sentinels = Sentinels(url)
        return sentinels.login.tls, partial(sentinels.connection, patience)
    address = address_of(url)
    return address.tls, partial(SocketConnection, address)
