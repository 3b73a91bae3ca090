"""redis-py's connections from a store's URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.retry import Retry

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.redaction import redacted
from pollconsumer.store.own_descriptors import Opened, above_standard
from pollconsumer.store.patience import COMMAND_TIMEOUT


class _Disowning:
    """A connection that does not close its socket if a handler did: its number may be another file's by now."""

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


def options_of(url: str) -> dict[str, Any]:
    """The connection options in ``url``. ConfigurationError if it is invalid."""
    if url.partition(":")[0] not in _SCHEMES:
        raise ConfigurationError("store", redacted(url), "one of embedded, redis://, rediss://, unix://")
    try:
        options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        raise ConfigurationError("store", redacted(url), "not a URL that can be read") from None
    options.pop("connection_class", None)
    return options


def maker_of(url: str, options: dict[str, Any]) -> Callable[[], Any]:
    """A maker of connections to ``url``. ConfigurationError for unknown options."""
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
