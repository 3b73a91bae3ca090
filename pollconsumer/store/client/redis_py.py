"""Connections of a redis-py client: each is made as the client's pool would make it, and belongs to nobody else.

So its server, login, TLS and name are those of the client, and so are hooks such as ``redis_connect_func``. What a
client has for calls of its own is left out: decoding, retries, health checks, the limit of its pool; a `Wire` knows
what may be repeated, and for how long. Imported only where a client is given.

Nothing private of redis-py is used: so there is no descriptor to wait on, and redis-py itself waits for the rest of a
reply that has begun to come.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from redis.connection import DefaultParser
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as LateReply
from redis.sentinel import MasterNotFoundError

from pollconsumer.core.notation.text import redacted
from pollconsumer.core.users_code import called, described
from pollconsumer.store.client.connection import MOST_BYTES, Command, packed
from pollconsumer.store.client.replies import ErrorReply

READABLE_EVERY = 0.05
"""Seconds between looks at a connection, while something else is waited for, too."""
LOOK_EVERY = 1.0
"""Seconds of use after which a Sentinel is asked whether the server is still the primary."""
LOOK_AGAIN_AFTER = 5.0
"""Seconds after which another Sentinel is asked where one did not answer."""
OF_THE_CLIENT = ("retry", "retry_on_error", "retry_on_timeout", "himport_registry", "event_dispatcher")
"""Options of the client's connections that are for its own calls."""
OF_NOTIFICATIONS = ("maint_", "oss_cluster_maint_", "orig_")
"""What options begin with that serve the client's notifications, which only RESP3 has."""


class PlainError(ErrorReply, ResponseError):
    """An error reply as the server wrote it. redis-py's own have lost its first word."""


class ReplyParser(DefaultParser):  # type: ignore[misc, valid-type]
    """Parses replies as redis-py does, but for errors."""

    @classmethod
    def parse_error(cls, response: str) -> PlainError:
        return PlainError(response)


class ClientConnection:
    """A `Connection` made of one of redis-py's, with the options of a pool."""

    def __init__(self, pool: Any, **options: Any) -> None:
        """``options`` replace those of the pool."""
        self._pool, self._options = pool, options
        self._is_found_by_sentinel = isinstance(pool, redis.sentinel.SentinelConnectionPool)
        self._look_at = time.monotonic() + LOOK_EVERY
        self._lost = False
        """Whether the connection was lost: redis-py would connect again by itself, as soon as it is to read or to
        write."""

    def connect(self, timeout: float) -> None:
        """Open the connection. Also raises ConfigurationError for a permanent failure of TLS."""
        kind = self._pool.connection_class
        kept = {
            name: value
            for name, value in (self._pool.connection_kwargs | self._options).items()
            if name not in OF_THE_CLIENT and not name.startswith(OF_NOTIFICATIONS)
        }
        kept |= {"decode_responses": False, "protocol": 2, "health_check_interval": 0, "parser_class": ReplyParser}
        kept |= {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        try:
            with _as_ours():
                self._connection = called(kind, **kept)
                called(self._connection.connect)
        except (ErrorReply, OSError) as error:
            self._refuse_wrong_tls(error, kind)
            raise
        except Exception as error:  # of a credential provider, or of redis_connect_func
            problem = redacted(f"the client raised {described(error)}")
            raise ConnectionError(problem) from error

    @staticmethod
    def _refuse_wrong_tls(error: Exception, kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, redis.SSLConnection):
            from pollconsumer.store.client.transport import tls_refusal

            if refusal := tls_refusal(error, {}, established=False):
                raise refusal from None

    @property
    def place(self) -> str:
        made = self._connection
        return getattr(made, "path", None) or f"{made.host}:{made.port}"

    def send(self, commands: Sequence[Command]) -> None:
        """Send ``commands``. Also raises ConnectionError once a Sentinel names another primary."""
        self._leave_replaced()
        text = b"".join(map(packed, commands))
        pieces = [text[at : at + MOST_BYTES] for at in range(0, len(text), MOST_BYTES)]
        with _as_ours():
            self._connection.send_packed_command(pieces, check_health=False)

    def read(self, timeout: float) -> Any:
        if not self.readable(timeout):
            raise TimeoutError(f"no answer within {timeout:.3g} s")
        try:
            with _as_ours():
                return self._connection.read_response(disable_decoding=True)
        except ErrorReply as reply:
            return reply

    def readable(self, timeout: float) -> bool:
        if self._lost:
            raise ConnectionError("connection lost")
        try:
            with _as_ours():
                return bool(self._connection.can_read(timeout))
        except OSError:
            self._lost = True
            raise

    def fileno(self) -> None:
        """None: redis-py keeps its descriptor private."""

    def close(self) -> None:
        self._connection.disconnect()

    def _leave_replaced(self) -> None:
        now = time.monotonic()
        if now < self._look_at or not self._is_found_by_sentinel:
            return
        self._look_at = now + LOOK_EVERY
        try:
            primary: tuple[str, int] = self._pool.get_master_address()
        except RedisError:
            self._look_at = now + LOOK_AGAIN_AFTER
            return
        made = self._connection
        if tuple(primary) != (made.host, made.port):  # GUARD a primary that a client's Sentinels replaced is left
            raise ConnectionError(f"{self.place} is not the primary any more")


@contextmanager
def _as_ours() -> Iterator[None]:
    """Wrap calls of redis-py: its errors are raised as a `Connection` raises them."""
    try:
        yield
    except ErrorReply:
        raise
    except NoScriptError as error:  # of fakeredis, which has its own parser
        raise ErrorReply(f"NOSCRIPT {error}") from None
    except ResponseError as error:
        raise ErrorReply(str(error)) from None
    except LateReply as error:
        raise TimeoutError(str(error)) from error
    except MasterNotFoundError as error:  # its text shows a client for each Sentinel
        said, fix = str(error).partition(" : ")[0], "check its name, and the addresses and login of the Sentinels"
        raise ConnectionError(f"{said}; {fix}") from error
    except RedisError as error:
        raise ConnectionError(str(error)) from error
