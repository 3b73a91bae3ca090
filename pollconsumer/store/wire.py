"""One connection to the server: bounded calls, an own retry, and every redis exception turned into one of ours.

redis-py's own retries are off. Its defaults (5 s, eleven tries) turn one lost packet into a minute, longer than a
launch lives, and they send again what may have been carried out.
"""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Any, Protocol

from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.retry import Retry

from pollconsumer.core.errors import (
    ConfigurationError,
    LeaseLost,
    PermissionDenied,
    PollConsumerError,
    StoreRefused,
    StoreUnreachable,
)
from pollconsumer.core.redaction import redacted
from pollconsumer.store.own_descriptors import Opened, above_standard
from pollconsumer.store.rights import refuse_without
from pollconsumer.store.scripts import Scripts
from pollconsumer.store.suitability import RESTORE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pollconsumer.store.scripts import Script

COMMAND_TIMEOUT = 2.0
"""Seconds in which a command that does not block must be answered."""


class _Disowning:
    """A connection that does not close its socket where a handler did: its number may be another file's by now."""

    _sock: Any
    _opened: Opened | None = None

    def connect(self) -> None:
        with above_standard():
            super().connect()  # type: ignore[misc]  # mixed into redis-py's
        self._opened = Opened.now(self._sock.fileno())

    def disconnect(self, *arguments: Any, **options: Any) -> None:
        if self._sock is not None and self._opened is not None and not self._opened.is_open():
            self._sock.detach()
        super().disconnect(*arguments, **options)  # type: ignore[misc]  # likewise


_SCHEMES: dict[str, type] = {
    scheme: type(kind.__name__, (_Disowning, kind), {})
    for scheme, kind in (("redis", Connection), ("rediss", SSLConnection), ("unix", UnixDomainSocketConnection))
}
_PASSING = ("READONLY", "LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "OOM", "MISCONF", "NOREPLICAS")
_REFUSED = ("NOAUTH", "WRONGPASS", "NOPERM")
_REFUSED_IN_SCRIPT = ("ACL failure in script", "The user executing the script can't")


class Patience(Protocol):
    """How long a caller bears with a server that does not answer."""

    def left(self) -> float:
        """Seconds until giving up; 0 gives up now."""

    def pause(self, seconds: float) -> None:
        """Wait before another try."""

    def for_one_answer(self) -> float:
        """Seconds in which a server that is there must answer; COMMAND_TIMEOUT at most."""


class Budget:
    """Patience for ``seconds`` from now on, on the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def pause(self, seconds: float) -> None:
        time.sleep(min(seconds, self.left()))

    def for_one_answer(self) -> float:
        return COMMAND_TIMEOUT


class Unanswered(Exception):
    """A call that got no answer, or one that may be different in a moment. ``sent``: it may have been carried out."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class Wire:
    """A connection that is made when first used, again after a loss, and anew in a child process."""

    def __init__(
        self,
        url: str,
        patience: Callable[[], Patience],
        *,
        revive: Callable[[float], None] | None = None,
        greet: Callable[[Wire], None] | None = None,
        connect: Callable[[], Any] | None = None,
        scripts: Scripts | None = None,
    ) -> None:
        """``revive`` starts the server, within so many seconds, where that is ours to do; ``greet`` looks at it once on
        every new connection, and raises where it must not be used; ``connect`` makes another kind of connection."""
        self.address = redacted(url)
        self.patience = patience
        self.scripts = scripts or Scripts()
        self._revive, self._greet = revive, greet
        self._options = _options(url) if connect is None else {}
        self._make = connect or _factory(url, self._options)
        self._encrypted = url.startswith("rediss:")
        self._connection: Any = None
        self._pid = 0
        self.repeated = False
        """Whether the last call was sent more than once."""
        self.replicas = 0
        """How many the server had when it was greeted."""

    def call(self, script: Script | str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script, again after a lost answer: it must be one that repeats itself harmlessly."""
        return self.all([self.script(script, keys, args)])[0]

    def command(self, *arguments: str | bytes | float) -> Any:
        """Run one command that repeats itself harmlessly."""
        return self.all([arguments])[0]

    def blocking(self, command: Sequence[Any], seconds: float) -> Any:
        """Run one command that blocks for at most ``seconds``; None when it got no answer. Not repeated."""
        try:
            return self.once([command], blocking=seconds)[0]
        except Unanswered:
            self.close()
            return None

    def script(self, script: Script | str, keys: Sequence[str], args: Sequence[Any]) -> tuple[Any, ...]:
        """The command that runs a script, for `all` and `once`."""
        if isinstance(script, str):
            script = self.scripts[script]
        return ("EVALSHA", script.sha, len(keys), *keys, *args)

    def all(
        self, commands: Sequence[Sequence[Any]], *, mend: Callable[[], object] | None = None, blocking: float = 0.0
    ) -> list[Any]:
        """The answers to commands sent in one write, tried again until patience ends. Raises StoreUnreachable then.

        One of them may block for ``blocking`` seconds. ``mend`` undoes, before each further try, what the one before
        may have done unseen.
        """
        patience = self.patience()
        pause = 0.02
        sent = self.repeated = False
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
            patience.pause(pause)
            pause = min(1.0, pause * 2)

    def once(self, commands: Sequence[Sequence[Any]], *, blocking: float = 0.0) -> list[Any]:
        """The answers to commands sent in one write, one of which may block for ``blocking`` seconds.

        Raises Unanswered where there is none; the connection is closed then, so that no late reply can be taken for
        another's.
        """
        self.send(commands)
        return self.receive(commands, blocking=blocking)

    def send(self, commands: Sequence[Sequence[Any]]) -> None:
        connection = self._connected()
        try:
            connection.send_packed_command(
                [part for command in commands for part in connection.pack_command(*command)], check_health=False
            )
        except (exceptions.RedisError, OSError) as error:
            self.close()
            raise Unanswered(str(error), sent=True) from None

    def receive(self, commands: Sequence[Sequence[Any]], *, blocking: float = 0.0) -> list[Any]:
        """Answers to what `send` sent; scripts unknown to the server are loaded and run again.

        A WAIT at the end waits for these, too.
        """
        answers, timeout = [], self.patience().for_one_answer()
        for _ in commands:
            answers.append(self._answer(timeout + blocking))
            if isinstance(answers[-1], exceptions.AuthenticationError):
                _raise_if_error(answers[-1])  # redis-py hangs up after it
        loading = False
        for at, answer in enumerate(answers):
            if isinstance(answer, exceptions.NoScriptError):
                loading = True
                script = next(s for s in self.scripts.known() if s.sha == commands[at][1])
                self.send([("SCRIPT", "LOAD", script.code), commands[at]])
                loaded, answers[at] = self._answer(timeout), self._answer(timeout)
                _raise_if_error(loaded)
        if loading and commands[-1][0] == "WAIT":
            self.send(commands[-1:])
            answers[-1] = self._answer(timeout + blocking)
        for answer in answers:
            _raise_if_error(answer)
        return answers

    def readable(self, timeout: float) -> bool:
        """Whether an answer arrives within ``timeout`` seconds. A lost connection is readable: `receive` says so."""
        try:
            return bool(self._connection is None or self._connection.can_read(timeout))
        except (exceptions.RedisError, OSError):
            return True

    def fileno(self) -> int | None:
        """The descriptor to wait on, which redis-py has no public name for; None where there is none."""
        socket: Any = getattr(self._connection, "_sock", None)
        return socket.fileno() if hasattr(socket, "fileno") else None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            connection.disconnect()

    def _connected(self) -> Any:
        if self._connection is not None and self._pid == os.getpid():
            return self._connection
        try:
            return self._connect()
        except Unanswered:
            if self._revive is None:
                raise
            try:
                self._revive(self.patience().left())
            except StoreUnreachable as error:
                raise Unanswered(str(error), sent=False) from None
            return self._connect()

    def _connect(self) -> Any:
        connection = self._make()
        connection.socket_connect_timeout = self.patience().for_one_answer()
        try:
            connection.connect()
        except exceptions.RedisError as error:
            self._raise_if_refused(error, established=False)
            _raise_if_error(error)
            raise Unanswered(str(error), sent=False) from None
        except OSError as error:
            self._raise_if_refused(error, established=False)
            raise Unanswered(error.strerror or str(error), sent=False) from None
        self._connection, self._pid = connection, os.getpid()
        if self._greet is not None:
            try:
                self._greet(self)
            except BaseException:
                self.close()
                raise
        return connection

    def _answer(self, timeout: float) -> Any:
        if self._connection is None:
            raise Unanswered("connection lost", sent=True)
        try:
            return self._connection.read_response(timeout=timeout)
        except (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.InvalidResponse, OSError) as error:
            if isinstance(error, exceptions.AuthenticationError | exceptions.BusyLoadingError):
                return error
            self.close()
            self._raise_if_refused(error, established=True)
            raise Unanswered(str(error), sent=True) from None
        except exceptions.RedisError as error:
            return error

    def _raise_if_refused(self, error: BaseException, *, established: bool) -> None:
        """For TLS that fails however often it is tried."""
        if self._encrypted:
            from pollconsumer.store.transport import tls_refusal

            if refusal := tls_refusal(error, self._options, established=established):
                raise refusal from None
            if not established and isinstance(error, exceptions.TimeoutError):
                raise Unanswered("Timeout connecting to server: is it a port with TLS?", sent=False) from None


def _raise_if_error(answer: Any) -> None:
    """Every error reply as one of our exceptions; the prefix of the reply decides."""
    if not isinstance(answer, exceptions.RedisError):
        return
    if isinstance(answer, exceptions.AuthenticationError | exceptions.AuthorizationError):
        raise PermissionDenied("authentication failed", None, "check user and password of the store's URL") from None
    if isinstance(answer, exceptions.ConnectionError | exceptions.TimeoutError):
        raise Unanswered(str(answer), sent=False) from None
    text = str(answer)
    # redis-py takes some prefixes off and gives the error a class of its own instead.
    kind = _CLASSES.get(type(answer)) or text.partition(" ")[0]
    if kind == "FENCED":
        raise LeaseLost("lease lost", text.partition(" ")[2] or None, "a newer launch holds it") from None
    if kind == "FORGOTTEN":
        raise StoreRefused("store emptied while it was used", None, RESTORE) from None
    if kind in _REFUSED or any(said in text for said in _REFUSED_IN_SCRIPT):
        if named := re.search(r"no permissions to run the '([^']+)' command", text):
            refuse_without([named[1].encode()])
        raise PermissionDenied("not permitted", text, "extend the access rules of the store's user") from None
    if kind in _PASSING:
        raise Unanswered(text, sent=False) from None
    if kind == "FOREIGN" or "is not an integer" in text:
        key = text.partition(" ")[2]
        raise StoreRefused("key is not ours", key, "another program writes to our namespace; choose another") from None
    if "WRONGTYPE" in text:
        raise StoreRefused("key of a wrong type", text, "another program uses our namespace; choose another") from None
    raise PollConsumerError("the store refused a command", text) from None


_CLASSES: dict[type, str] = {
    exceptions.NoPermissionError: "NOPERM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.OutOfMemoryError: "OOM",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.TryAgainError: "TRYAGAIN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.MasterDownError: "MASTERDOWN",
}


def _options(url: str) -> dict[str, Any]:
    """What ``url`` says of the connection. Raises ConfigurationError for one that says nothing."""
    if url.partition(":")[0] not in _SCHEMES:
        raise ConfigurationError("store", redacted(url), "one of embedded, redis://, rediss://, unix://")
    try:
        options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        raise ConfigurationError("store", redacted(url), "not a URL that can be read") from None
    options.pop("connection_class", None)
    return options


def _factory(url: str, options: dict[str, Any]) -> Callable[[], Any]:
    """A maker of connections to ``url``. Raises ConfigurationError for options that there are not."""
    kind = _SCHEMES[url.partition(":")[0]]
    options = options | {
        "socket_timeout": COMMAND_TIMEOUT,
        "socket_connect_timeout": COMMAND_TIMEOUT,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
    }
    try:
        kind(**options)
    except TypeError as error:
        unknown = str(error).rpartition("argument ")[2].strip("'")
        raise ConfigurationError("store", redacted(url), f"unknown option {unknown}") from None
    except exceptions.RedisError as error:
        raise ConfigurationError("store", redacted(url), str(error)) from None
    return lambda: kind(**options)
