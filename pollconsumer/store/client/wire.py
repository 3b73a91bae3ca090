"""Calls to the store: repetitions while the caller's patience lasts, confirmations by replicas, errors that say what to
do. And the connection to one server, opened when it is first needed, after a loss, and in a forked process."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from pollconsumer.core.errors import PermissionDenied, PollConsumerError, StoreRefused, StoreUnreachable, UsageError
from pollconsumer.core.notation.text import redacted
from pollconsumer.store.client.address import CredentialProvider, address_of
from pollconsumer.store.client.connection import Command, Connection, SocketConnection
from pollconsumer.store.client.patience import STEP, Patience, answer_within, left_until
from pollconsumer.store.client.replies import (
    ErrorReply,
    Interruption,
    OutOfTime,
    Unanswered,
    not_understood,
    raise_if_error,
    raise_if_thrown,
    unreachable,
)
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.scripts import Script, Scripts

WAITING = ("WAIT", "WAITAOF")
MARKER = "replicated"
"""Suffix of the keys that `Strict.awaiting` writes."""
PREPARING = ("rights", "register")
"""Scripts whose changes need no confirmation of their own: a change always follows, whose confirmation covers them."""


class Strict(NamedTuple):
    """How many ``replicas`` must confirm a change (None: one, if the server has any), and ``within`` how many seconds.
    ``aof``: the change must be in the append-only files of the server and of these replicas."""

    replicas: int | None
    within: float
    aof: bool = False

    @property
    def right(self) -> str:
        """The command that waits for replicas. The store's user needs a right to it."""
        return WAITING[self.aof]

    def waits(self, connected: int) -> bool:
        """Whether a change on a server with ``connected`` replicas needs a confirmation."""
        return self.aof or bool(self._wanted(connected))

    def awaiting(self, wire: Wire, keys: Iterable[str]) -> list[Command]:
        """Commands that wait for the confirmation of a call, to be appended to it; empty if the server of ``wire`` need
        not wait for replicas. ``keys``: one key of each slot that the call wrote to.

        WAIT covers only writes of its own connection. A repeated call may write nothing, because its first try wrote on
        another connection. So a write to each slot comes first."""
        if not self.waits(wire.replicas):
            return []
        wanted, ms = self._wanted(wire.replicas), max(1, round(self.within * 1000))
        waiting = ("WAITAOF", 1, wanted, ms) if self.aof else ("WAIT", wanted, ms)
        markers = dict.fromkeys(f"{key.partition('}')[0]}}}:{MARKER}" for key in keys)
        return [*(wire.mark(marker, 1000) for marker in markers), waiting]  # GUARD what a lost connection wrote

    def shortfall(self, answer: Any, connected: int) -> str:
        """What the ``answer`` to the last command of `awaiting` leaves unconfirmed, in words; empty if nothing."""
        local, having = answer if self.aof else (1, answer)
        wanted = self._wanted(connected)
        if having < wanted:
            return f"only {having} of {wanted} replicas had it within {self.within:.3g}s"
        return "" if local else f"it was not in the append-only file within {self.within:.3g}s"

    def unconfirmed(self, problem: str) -> Exception:
        """The exception for a change that was not confirmed in time: Unanswered, so it is repeated on another
        connection."""
        return Unanswered(problem, sent=True)

    def _wanted(self, connected: int) -> int:
        return min(1, connected) if self.replicas is None else self.replicas


class ByPeople(Strict):
    """For changes by a person, who decides whether to repeat a change that was not confirmed."""

    def unconfirmed(self, problem: str) -> Exception:
        fix = "the change is lost if a replica without it is promoted: check before you repeat it"
        return StoreUnreachable(f"changed, but {problem}", None, fix)


MISREAD = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, struct.error)
"""Errors that reading an answer may raise if it does not have the expected form."""
LastAcknowledged = tuple[str, str | bytes, bool, float]
"""The last message that was acknowledged to a caller: queue, id, whether completed or only accepted, monotonic time."""


class Watermarks(NamedTuple):
    """What this process knows of the store's watermark, a number that rises (``suitability.py``). ``seen``: a watermark
    that the store certainly reached. ``greatest``: the greatest watermark or fence that is known."""

    seen: int
    greatest: int


class CallPatienceSource:
    """Returns the patience for the next wait: all waits of one `Wire.all` share a patience; any other wait gets a new
    one. This object has no reference to the wire, so that an unused wire is deleted, and closed, at once."""

    __slots__ = ("_patience", "call")

    def __init__(self, patience: Callable[[], Patience]) -> None:
        self._patience = patience
        self.call: Patience | None = None

    def __call__(self) -> Patience:
        return self.call or self._patience()


class Wire:
    """Commands to one server, over a connection that is opened when needed; or, in `ClusterWire`, to a cluster."""

    is_cluster = False
    look_every = inf
    """Seconds after which a caller that waits on `fileno` must check `readable`."""

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
        """``patience``: called for the patience of each call. ``greet`` checks each new connection, and raises if the
        server must not be used; it returns the number of the server's replicas, or None. ``strict``: a script's change
        counts as unanswered until replicas confirm it. ``revive``: given seconds, starts an embedded server within
        these. ``connect`` makes another kind of connection. ``credentials``: asked for the login at each connection.
        ConfigurationError for an invalid ``url``."""
        self.address = redacted(url)
        self.over_network = not url.startswith(("unix:", "memory:"))
        self.patience = patience
        self.scripts = Scripts() if scripts is None else scripts
        self._greet, self.strict = greet, strict
        self.last_answer: Any = None
        """The answers to the last call on the current connection; None before the first."""
        self.location = ""
        """The server to which the last connection led: host and port, or a path."""
        self._patience_source = CallPatienceSource(patience)
        self.repeated = False
        """Whether the last call was sent more than once."""
        self._problem = "no time is left to connect"
        """Why the last call was not answered, for an error."""
        self.replicas = 0
        """The number of the server's replicas when the connection was opened."""
        self.watermarks = Watermarks(0, 0)
        self.last_acknowledged: LastAcknowledged | None = None
        """The last message that was acknowledged. From it and the watermarks, a later connection detects a rollback of
        the store: see ``suitability.py``."""
        self.skips_lost = False
        """Whether `readable_queues` leaves out queues whose cluster node is lost, and adds them to ``unread``."""
        self.unread: set[str] = set()
        self._revive = revive
        self._tls: Mapping[str, str] | None = None
        if connect is None and url.startswith("redis+sentinel:"):
            from pollconsumer.store.client.sentinel import PrimaryConnection, Sentinels  # few stores have Sentinels

            sentinels = Sentinels(url, credentials)
            self._tls, connect = sentinels.login.tls, partial(PrimaryConnection, sentinels, self._patience_source)
        elif connect is None and not self.is_cluster:
            address = address_of(url)._replace(credentials=credentials)
            self._tls, connect = address.tls, partial(SocketConnection, address, self._patience_source)
        self._make = connect
        self._connection: Connection | None = None
        self._client: int | None = None
        self._abandoned: dict[str, list[int]] = {}
        """Client ids of connections that were closed with an unanswered command, by server."""
        self._pid = 0
        self._greeted = self._awaits = False
        """``_greeted``: the connection's server was checked. ``_awaits``: an answer is outstanding."""

    @property
    def rights(self) -> tuple[str, ...]:
        """Commands that the wire itself sends, and to which the user's rights are checked before the first write."""
        return () if self.strict is None else (self.strict.right,)  # GUARD rights of one that waits

    def call(self, script: Script | str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run an idempotent script, and return its answer. It is repeated after a lost answer."""
        return self.all([self.script(script, keys, args)])[0]

    def run(self, name: str, keys: Keys, queue: str, args: Sequence[Any]) -> Any:
        """`call` for the script ``name``, with its keys of ``queue``."""
        return self.all([self.queue_command(name, keys, queue, args)])[0]

    def queue_command(self, name: str, keys: Keys, queue: str, args: Sequence[Any]) -> Command:
        """The command that runs the script ``name`` with its keys of ``queue``: see `script`."""
        script = self.scripts[name]
        return self.script(script, keys.names_for(script.keys, queue), args)

    def command(self, *arguments: str | bytes | float) -> Any:
        """Run an idempotent command, and return its answer. It is repeated after a lost answer."""
        return self.all([arguments])[0]

    def script(self, script: Script | str, keys: Sequence[str], args: Sequence[Any]) -> tuple[Any, ...]:
        """The command that runs a script, to be sent by `all` or `once`. If the script's last key is ``answered``, a
        random suffix makes this key the call's own. The script stores its answer there, and when the command is sent
        again, returns that answer. Any other script runs again."""
        if isinstance(script, str):
            script = self.scripts[script]
        if script.is_act and len(keys) == len(script.keys):
            keys = [*keys[:-1], f"{keys[-1]}:{os.urandom(8).hex()}"]  # GUARD a number of the call
        return ("EVALSHA", script.sha, b"%d" % len(keys), *keys, *args)

    def mark(self, key: str, ms: int) -> Command:
        """The command that writes ``key`` for ``ms`` milliseconds. A full server accepts it, unlike SET."""
        return self.script("mark", [key], [ms])

    def all(
        self,
        commands: Sequence[Command],
        *,
        on_repeat: Callable[[], object] | None = None,
        blocking: float = 0.0,
        parting: bool = True,
    ) -> list[Any]:
        """Send the commands in one write; return their answers. If none come, the commands are repeated until patience
        ends. Then StoreUnreachable is raised.

        ``blocking``: seconds that one of the commands may wait in the server. ``on_repeat`` is called before each
        repetition, to undo what the last try may have done. ``parting``: raise NodeLost as `part` does, else wait for a
        lost cluster node."""
        source = self._patience_source
        outer = source.call
        patience = source.call = outer or self.patience()
        pause = 0.02
        sent = self.repeated = False
        try:
            while True:
                try:
                    if on_repeat and self.repeated:
                        on_repeat()
                        self.repeated = True
                    return self.once(commands, blocking=blocking)
                except Unanswered as unanswered:
                    self.close()
                    first, self.repeated = not self.repeated, True
                    sent = sent or unanswered.sent
                    if patience.left() <= 0:
                        error = unreachable(self.address, unanswered)
                        error.sent = sent
                        raise error from None
                    if parting:
                        self.part(commands)
                    patience.missed(self.address, str(unanswered), first=first)
                except StoreUnreachable as error:
                    error.sent = error.sent or sent
                    raise
                patience.pause(pause)
                pause = min(1.0, pause * 2)
        finally:
            source.call = outer

    def once(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        """Send the commands in one write; return their answers. ``blocking``: seconds that one may wait in the server.

        Raises Unanswered if there is no answer. Then, and after an exception within the call, such as Ctrl-C's, the
        connection is closed, so that a late reply is not taken for the answer to a later command."""
        try:
            if self.strict is not None and any(command[0] == "EVALSHA" for command in commands):
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
        except Interruption as thrown:
            self._abandon()
            raise thrown.error from None
        except BaseException:
            self._abandon()
            raise

    def misread(self, error: BaseException) -> StoreRefused | None:
        """The error to raise in place of ``error``, which was raised while an answer was read: StoreRefused, if the
        server does not answer TIME as Redis does. None if it does, does not answer at all, or ``error`` has another
        cause: then ``error`` itself is to be raised."""
        if not isinstance(error, MISREAD) or isinstance(error, PollConsumerError) or self.last_answer is None:
            return None
        replied = self.last_answer
        try:
            (time,) = self.once([("TIME",)])
        except (Unanswered, StoreUnreachable, PermissionDenied):  # the server is a Redis, or did not answer
            return None
        except PollConsumerError:
            return not_understood(replied)
        finally:
            self.close()
        is_error_of_redis = (
            isinstance(time, list) and len(time) == 2 and all(type(each) is bytes and each.isdigit() for each in time)
        )
        return None if is_error_of_redis else not_understood(replied)  # GUARD whose word it is

    def _refuse(self, reply: ErrorReply, command: Command) -> None:
        """Raise the exception for an error reply to ``command``. If it says that a key has the wrong type, check the
        server first: the keys of a closed store have the wrong type, and the check raises the error that says so."""
        greet = self._greet
        if greet is not None and "WRONGTYPE" in str(reply):
            self._greet = None
            try:
                greet(self)
            finally:
                self._greet = greet
        raise_if_error(reply, command)

    def servers(self) -> Sequence[Wire]:
        """A wire for each server of the store. The first server tells the time."""
        return [self]

    def lost_servers(self) -> Sequence[Wire]:
        """Wires for the cluster nodes that do not answer; none for a single server."""
        return []

    def lost(self, keys: Collection[str]) -> set[str]:  # noqa: ARG002  all of them are on one server
        """The ``keys`` whose cluster node does not answer; none if the node with the leases is lost, too."""
        return set()

    def isolate_keys(self, keys: Sequence[str]) -> None:
        """Set ``keys``, one of each queue, for `part`: if only some of them are on lost cluster nodes, calls that need
        these keys raise NodeLost, so that the other queues need not wait."""

    def part(self, commands: Sequence[Command]) -> None:
        """Raise NodeLost if ``commands``, which were not answered, need a lost cluster node, and work can go on without
        it: other nodes have the leases, and some keys of `isolate_keys`."""

    def at_rest(self) -> bool:
        """Whether all that was sent is answered, so that another call may use the connection."""
        return self._connection is None or (self._greeted and not self._awaits)

    def send(self, commands: Sequence[Command]) -> None:
        """Send ``commands`` in one write. Connects if there is no connection."""
        connection = self._connected()
        self._awaits = True
        try:
            connection.send(commands)
        except OSError as error:
            raise_if_thrown(error)
            self._abandon()
            raise Unanswered(str(error), sent=True) from None

    def receive(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        """The answers to ``commands``, which `send` has sent. A script that the server does not know is loaded and run;
        then a WAIT at the end is repeated."""
        patience = self._patience_source.call or self.patience()
        answers = self._answers(len(commands), patience.for_one_answer(blocking))
        for answer in answers:
            if isinstance(answer, ErrorReply):
                return self._loading(commands, answers, blocking)
        return answers

    def _loading(self, commands: Sequence[Command], answers: list[Any], blocking: float) -> list[Any]:
        """Load and run the scripts that the server did not know; enter their answers. Raises any other error reply."""
        loading = False
        for at, answer in enumerate(answers):
            if isinstance(answer, ErrorReply) and str(answer).startswith("NOSCRIPT"):
                loading = True
                script = self.scripts.unknown(commands[at][1])
                self.send([("SCRIPT", "LOAD", script.code), ("EVALSHA", script.sha, *commands[at][2:])])
                loaded, answers[at] = self._answers(2, self._patience_source().for_one_answer(blocking))
                raise_if_error(loaded)
        if loading and commands[-1][0] in ("WAIT", "WAITAOF"):
            self.send(commands[-1:])
            answers[-1:] = self._answers(1, self._patience_source().for_one_answer(blocking))
        refusals = [at for at, answer in enumerate(answers) if isinstance(answer, ErrorReply)]
        try:
            for at in refusals:
                self._refuse(answers[at], commands[at])
        except Unanswered as unanswered:
            unanswered.sent = len(refusals) < len(answers)
            raise
        return answers

    def raw(self, command: Command, timeout: float) -> Generator[bytes]:
        """Send a command after which the server does not speak the protocol any more, yield the bytes that it sends,
        and close the connection. StoreUnreachable if the connection is lost, or nothing comes within ``timeout``
        seconds. UsageError if the connection belongs to a user's client."""
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
        """The number of the server's replicas. Connects if there is no connection."""
        self._connected()
        return self.replicas

    def readable(self, timeout: float) -> bool:
        """Whether an answer arrives within ``timeout`` seconds. True if the connection is lost: `receive` then
        raises."""
        try:
            return self._connection is None or self._connection.readable(timeout)
        except OSError:
            return True

    def fileno(self) -> int | None:
        """The descriptor of the connection; None if there is none."""
        return None if self._connection is None else self._connection.fileno()

    def close(self) -> None:
        """Close the connection, with or without unanswered commands. The next call opens another one."""
        connection, self._connection, self._client = self._connection, None, None
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection:
        if self._connection is not None:
            if self._pid == os.getpid():
                return self._connection
            self.close()  # it is the parent's connection
        try:
            return self._connect()
        except Unanswered:
            if self._revive is None:
                raise
            try:
                self._revive(self._patience_source().left())
            except StoreUnreachable as error:
                raise Unanswered(str(error), sent=False) from None
            return self._connect()

    def _connect(self) -> Connection:
        timeout = self._patience_source().to_connect()
        if timeout <= 0:
            raise OutOfTime
        assert self._make is not None
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
        self._connection, self._pid, self.location = connection, os.getpid(), connection.location
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
        self._greeted, self.last_answer = True, None
        return connection

    def _close_abandoned(self) -> None:
        """Have the server close the wire's abandoned connections: TCP may deliver their commands minutes later,
        after they were repeated. If the server refuses that, it is used nevertheless."""
        abandoned = self._abandoned.get(self.location, ())  # GUARD clients of another server are left alone
        commands = [("CLIENT", "ID"), *(("CLIENT", "KILL", "ID", client) for client in abandoned)]
        self.send(commands)
        timeout = self._patience_source().for_one_answer()
        client, *_ = answers = self._answers(len(commands), timeout)
        for answer in answers:
            if isinstance(answer, ErrorReply) and str(answer).startswith(("NOAUTH", "LOADING")):
                raise_if_error(answer)
        self._client = client if isinstance(client, int) else None
        self._abandoned.pop(self.location, None)

    def _abandon(self) -> None:
        if self._client is not None:
            self._abandoned.setdefault(self.location, []).append(self._client)
        self.close()

    def _answers(self, count: int, timeout: float) -> list[Any]:
        """The next ``count`` answers. Each must come within ``timeout`` seconds. After ``timeout`` seconds, the wait
        for all of them ends with the patience."""
        connection = self._connection
        if connection is None:
            raise Unanswered("connection lost", sent=True)
        answers: list[Any] = []
        began = monotonic()
        try:
            while len(answers) < count:
                within = timeout
                if monotonic() - began > timeout:
                    within = left_until(monotonic() + self._patience_source().left(), timeout)
                answers.append(connection.read(within))
            self.last_answer, self._awaits = answers, False
            return answers
        except OSError as error:
            raise_if_thrown(error)
            self._abandon()
            self._raise_if_refused(error, established=True)
            raise Unanswered(str(error), sent=True) from None

    def _raise_if_refused(self, error: OSError, *, established: bool) -> None:
        """If ``error`` shows that TLS can never work, raise the error that says so."""
        if self._tls is not None:
            from pollconsumer.store.client.transport import tls_refusal

            if refusal := tls_refusal(error, self._tls, established=established):
                raise refusal from None
            if not established and isinstance(error, TimeoutError):
                raise Unanswered("timed out: is it a port with TLS?", sent=False) from None


def confirmed(wire: Wire, strict: Strict, commands: Sequence[Command], blocking: float) -> list[Any]:
    """The answers to ``commands``, once replicas have confirmed what their scripts changed; else raises
    `Strict.unconfirmed`. If the last command is a WAIT, its answer is not checked: the caller does that."""
    preparing = {wire.scripts[name].sha for name in PREPARING}
    changing = (command for command in commands if command[0] == "EVALSHA" and command[1] not in preparing)
    keys = [] if commands[-1][0] in WAITING else [command[3] for command in changing]
    left = wire.patience().left()
    # A server that does not know the scripts, as a new primary, gets them first. Then it waits for replicas twice.
    strict = strict._replace(within=min(strict.within, max(STEP, left / 2)))
    wire.connected_replicas()
    waited = [*commands, *(strict.awaiting(wire, keys) if keys else ())]
    wire.send(waited)
    beyond = max(0.0, left - answer_within(left))  # the part of the patience beyond the timeout of an answer
    answers = wire.receive(waited, blocking=blocking + min(strict.within, beyond))
    if len(waited) > len(commands) and (problem := strict.shortfall(answers[-1], wire.replicas)):
        wire.close()  # the server may no longer be the primary
        raise strict.unconfirmed(problem)  # GUARD confirmation of what a launch changed
    return answers[: len(commands)]
