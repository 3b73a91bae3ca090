"""Addresses and logins of servers, Sentinels and clusters, read from a store's URL. Also warnings about URLs that send
a password unencrypted, or otherwise let others read it."""

import ipaddress
import re
import socket
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.text import redacted
from pollconsumer.core.users_code import called, described

SCHEMES = ("redis", "rediss", "unix")
TLS_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
CERTIFICATE = "ssl_cert_reqs"
"""The URL's option that says whether the server's certificate must be verified."""
TLS_OPTIONS = frozenset({*TLS_FILES, CERTIFICATE, "ssl_password", "ssl_check_hostname", "ssl_ciphers"})
"""The names of TLS options in a URL; redis-py uses the same."""
PORT = 6379
KEPT_ALIVE_EVERY = 60
"""Seconds of idleness after which TCP checks a connection. Proxies often drop idle ones without telling either end."""
HIGHEST_PORT = 65535
_HOST, _PORT = r"(?a:[\w.:%-]{1,255})", "[0-9]{1,5}"
"""Patterns of a host name or address, and of a port. They match no character with a meaning in URLs. They are text,
since few launches compile them."""
_IDLE: int = getattr(socket, "TCP_KEEPIDLE", 0) or getattr(socket, "TCP_KEEPALIVE", 0)
"""The socket option for the seconds of idleness: its name differs between Linux and macOS."""
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class CredentialProvider(Protocol):
    """A credential provider, as redis-py defines it: an object with the method `get_credentials`."""

    def get_credentials(self) -> Sequence[str]:
        """User and password; or only the password."""


class Address(NamedTuple):
    """A server's address. ``path``: a Unix socket; empty if ``host`` and ``port`` are used. ``tls``: the options for
    TLS; None without TLS."""

    host: str
    port: int
    path: str
    user: str
    password: str
    database: int
    tls: Mapping[str, str] | None
    credentials: CredentialProvider | None = None
    """If set, it is asked for the login at each connection, instead of user and password."""

    def login(self) -> list[tuple[str | int, ...]]:
        """The commands that log in at the beginning of a connection. Raises the errors of `asked_of`."""
        commands: list[tuple[str | int, ...]] = []
        if self.credentials is not None:
            commands.append(("AUTH", *asked_of(self.credentials)))
        elif self.user or self.password:
            commands.append(("AUTH", *([self.user] if self.user else []), self.password))
        if self.database:
            commands.append(("SELECT", self.database))
        return commands

    def open(self, timeout: float) -> socket.socket:
        """A connected socket, without TLS. OSError if it cannot connect within ``timeout`` seconds."""
        if not self.path:
            # As bytes: text would import the codec of internationalised names.
            host: Any = self.host.encode() if self.host.isascii() else self.host
            opened = socket.create_connection((host, self.port), timeout)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            opened.setsockopt(socket.IPPROTO_TCP, _IDLE, KEPT_ALIVE_EVERY)
            return opened
        opened = socket.socket(socket.AF_UNIX)
        try:
            opened.settimeout(timeout)
            opened.connect(self.path)
        except BaseException:
            opened.close()
            raise
        return opened


def asked_of(provider: CredentialProvider) -> Sequence[str]:
    """The login that ``provider`` returns now. ConnectionError if the provider raises: it may ask another host, so
    another try may help. ConfigurationError, which does not show the value, if what it returns is no login."""
    try:
        given = called(provider.get_credentials)
    except Exception as error:
        problem = redacted(f"get_credentials raised {described(error)}")
        raise ConnectionError(f"credentials: {problem}") from None
    is_login = isinstance(given, tuple | list) and len(given) in (1, 2) and all(isinstance(each, str) for each in given)
    if not is_login:
        if isinstance(given, Coroutine):
            given.close()  # else Python warns that it was never awaited
        fix = "get_credentials must return (user, password) or (password,)"
        raise ConfigurationError("credentials", f"a {type(given).__name__}", fix)
    return given


def host_and_port(answer: Any) -> tuple[str, int] | None:
    """Host and port in the ``answer`` of a server that names another server; None if they are missing or invalid."""
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        return None
    host, port = (each.decode("ascii", "replace") if isinstance(each, bytes) else str(each) for each in answer)
    if not re.fullmatch(_HOST, host) or not re.fullmatch(_PORT, port) or not 0 < int(port) <= HIGHEST_PORT:
        return None
    return host, int(port)


def address_of(url: str) -> Address:
    """The address in ``url``. ConfigurationError if it is invalid."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ConfigurationError("store", redacted(url), "not a URL that can be read") from None
    path = unquote(parts.path)
    user, password = options.pop("username", ""), options.pop("password", "")
    database = options.pop("db", "" if parts.scheme == "unix" else path.strip("/"))
    if rule := _broken_rule(parts.scheme, path, database, options):
        raise ConfigurationError("store", redacted(url), rule)
    return Address(
        host=unquote(host or "localhost"),
        port=port or PORT,
        path=path if parts.scheme == "unix" else "",
        user=unquote(parts.username or "") or user,
        password=unquote(parts.password or "") or password,
        database=int(database or 0),
        tls=options if parts.scheme == "rediss" else None,
    )


def _broken_rule(scheme: str, path: str, database: str, options: Mapping[str, str]) -> str:
    """The first rule that a URL with these parts breaks, for an error; empty if it breaks none."""
    if scheme not in SCHEMES:
        return "one of embedded, redis://, rediss://, unix://, redis+sentinel://, redis+cluster://"
    if scheme == "unix" and not path:
        return "it names no socket: unix:///PATH"
    if database and not (database.isascii() and database.isdecimal()):
        return "the database must be a number"
    if unknown := options.keys() - (TLS_OPTIONS if scheme == "rediss" else frozenset()):
        return f"unknown option {min(unknown)}"
    return rule_of_certificate(options)


def rule_of_certificate(options: Mapping[str, str]) -> str:
    """The rule for `CERTIFICATE` that ``options`` break, for an error; empty if they break none."""
    known = options.get(CERTIFICATE, "none") in ("none", "optional", "required")
    return "" if known else f"{CERTIFICATE} must be none, optional or required"


def several_hosts(url: str) -> tuple[str, list[str], str, dict[str, str]]:
    """The parts of a URL with several hosts: login with ``@``, hosts with ports, path, all still percent-encoded; and
    options. `urlsplit` fails if the second host is in brackets. ValueError for unreadable options."""
    _, _, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    path, _, query = rest.removeprefix(authority).partition("?")
    login, at, hosts = authority.rpartition("@")
    return login + at, hosts.split(","), path, dict(parse_qsl(query, strict_parsing=bool(query)))


def take_boolean(options: dict[str, str], name: str, *, otherwise: bool) -> bool:
    """Remove the option ``name`` and return its value, by default ``otherwise``. ValueError if it is no boolean."""
    text = options.pop(name, "")
    if text.lower() not in ("", *_BOOLEANS):
        raise ValueError(f"{name} must be true or false")
    return _BOOLEANS.get(text.lower(), otherwise)


SENTINEL_PORT = 26379
_SENTINEL = r"(\[[0-9A-Fa-f:.]+]|[^:\[\]]+)(?::([0-9]{1,5}))?"


class SentinelService(NamedTuple):
    """A service of Sentinels, as a URL names it. ``primary``: its servers' login and options, without host and port."""

    name: str
    sentinels: tuple[Address, ...]
    primary: Address


def service_of(url: str) -> SentinelService:
    """The service in ``url``. ValueError, with the rule that ``url`` breaks, if it is invalid."""
    try:
        login, hosts, path, options = several_hosts(url)
    except ValueError:
        raise ValueError("not a URL that can be read") from None
    user, _, password = map(unquote, login.removesuffix("@").partition(":"))
    name, _, database = map(unquote, path.strip("/").partition("/"))
    if not name:
        raise ValueError("name the service after the Sentinels, as in redis+sentinel://h1,h2,h3/mymaster")
    database = options.pop("db", database)
    if not re.fullmatch(r"[0-9]*", database):
        raise ValueError("the database must be an integer, as in redis+sentinel://h1,h2,h3/mymaster/0")
    user, password = options.pop("username", user), options.pop("password", password)
    asked = options.pop("sentinel_username", ""), options.pop("sentinel_password", "")
    encrypted = take_boolean(options, "ssl", otherwise=False)
    sentinels_encrypted = take_boolean(options, "sentinel_ssl", otherwise=encrypted)
    if unknown := options.keys() - (TLS_OPTIONS if encrypted or sentinels_encrypted else frozenset()):
        known = "db, username, password, sentinel_username, sentinel_password, ssl, sentinel_ssl"
        known = f"known options: {known}, and ssl_... as of rediss://"
        raise ValueError("an option for TLS needs ssl=true" if unknown <= TLS_OPTIONS else known)
    if rule := rule_of_certificate(options):
        raise ValueError(rule)
    tls = options if sentinels_encrypted else None
    sentinels = tuple(Address(*_sentinel_host(each), "", *asked, 0, tls) for each in hosts)
    return SentinelService(
        name, sentinels, Address("", 0, "", user, password, int(database or 0), options if encrypted else None)
    )


def _sentinel_host(text: str) -> tuple[str, int]:
    """Host and port of a Sentinel, from its part of the URL."""
    found = re.fullmatch(_SENTINEL, text)
    if found is None or not 1 <= (port := int(found[2] or SENTINEL_PORT)) <= HIGHEST_PORT:
        raise ValueError("write Sentinels as host:port,host:port, and / ? # @ in a password as %2F %3F %23 %40")
    host = unquote(found[1].strip("[]"))
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("the host is no name: its parts, between dots, have 1 to 63 characters each") from None
    return host, port


class Node(NamedTuple):
    host: str
    port: int


def server_urls(url: str) -> list[str]:
    """The URL of each node in a cluster's ``url``. ValueError, with the rule that ``url`` breaks, if it is invalid."""
    login, hosts, path, options = several_hosts(url)
    if path not in ("", "/", "/0") or options.get("db", "0") != "0":
        raise ValueError("a cluster has no numbered databases: end the URL after its hosts")
    encrypted = take_boolean(options, "ssl", otherwise=False)
    if not encrypted and any(name.startswith("ssl_") for name in options):
        raise ValueError("an option for TLS needs ssl=true")
    scheme, after = "rediss" if encrypted else "redis", f"?{urlencode(options, quote_via=quote)}" if options else ""
    return [f"{scheme}://{login}{host}{after}" for host in hosts]


class ClusterAddress:
    """The nodes of a cluster, given by its URL. ``seeds``: the nodes in the URL. ``shown``: the cluster's address for
    messages, without a login."""

    shown: str
    seeds: Sequence[Node]

    def __init__(self, url: str, credentials: CredentialProvider | None = None) -> None:
        """Raise ConfigurationError if ``url`` is invalid."""
        try:
            self._urls = server_urls(url)
        except ValueError as error:
            raise ConfigurationError("store", redacted(url), str(error)) from None
        self.shown, self.credentials = redacted(url), credentials
        addresses = [address_of(each) for each in self._urls]
        self.seeds = [Node(address.host, address.port) for address in addresses]

    def url_of(self, node: Node) -> str:
        """The URL of one node, with the cluster's login and options."""
        scheme, _, rest = self._urls[0].partition("://")
        authority, question, query = rest.partition("?")
        login, at, _ = authority.rpartition("@")
        host = f"[{node.host}]" if ":" in node.host else node.host
        return f"{scheme}://{login}{at}{host}:{node.port}{question}{query}"

    def options_of(self, node: Node) -> dict[str, Any]:  # noqa: ARG002  all nodes have the same
        """Further arguments of `Wire`, besides the URL, for a connection to ``node``."""
        return {"credentials": self.credentials}


def url_warnings(url: str, *, logs_in: bool = False) -> Iterator[str]:
    """Warnings about insecure options of ``url``. ``logs_in``: a password that is not in the URL is sent, too."""
    if not url.startswith("redis+cluster:"):
        return _url_warnings(url, "use rediss://", logs_in)

    node_warnings = [warning for each in server_urls(url) for warning in _url_warnings(each, "add ssl=true", logs_in)]
    return iter(dict.fromkeys(node_warnings))


def _url_warnings(url: str, encrypt: str, logs_in: bool) -> Iterator[str]:
    """Warnings about a URL of one server, or of servers with Sentinels. ``encrypt``: how to write a URL with TLS."""
    login, _, _, asked = several_hosts(url)
    if asked.get("ssl_cert_reqs", "").lower() in ("none", "optional"):
        yield "store: ssl_cert_reqs=none: anybody in between can read and change everything; name its CA instead"
    password = logs_in or login.removesuffix("@").partition(":")[2] or {"password", "sentinel_password"} & asked.keys()
    if url.startswith("redis:") and password and (host := urlsplit(url).hostname) and not _is_loopback(host):
        yield f"store: the password goes to {host} unencrypted; {encrypt}"
    if url.startswith("redis+sentinel:") and password:
        _, sentinels, primary = service_of(url)
        far = [each.host for each in sentinels if not _is_loopback(each.host)]
        if far and (primary.tls is None or sentinels[0].tls is None):
            yield f"store: the password goes to {far[0]} and its like unencrypted; add ssl=true"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
