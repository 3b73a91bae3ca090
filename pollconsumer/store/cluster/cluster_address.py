"""The URL of a cluster: some of its nodes, from which the others are learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.text import redacted
from pollconsumer.store.client.address import CredentialProvider, address_of, several_hosts, take_boolean


class Node(NamedTuple):
    host: str
    port: int


def server_urls(url: str) -> list[str]:
    """The URL of each server that ``url`` names. ValueError, with the broken rule, if it cannot be read."""
    login, hosts, path, options = several_hosts(url)
    if path not in ("", "/", "/0") or options.get("db", "0") != "0":
        raise ValueError("a cluster has no numbered databases: end the URL after its hosts")
    encrypted = take_boolean(options, "ssl", otherwise=False)
    if not encrypted and any(name.startswith("ssl_") for name in options):
        raise ValueError("an option for TLS needs ssl=true")
    scheme, after = "rediss" if encrypted else "redis", f"?{urlencode(options, quote_via=quote)}" if options else ""
    return [f"{scheme}://{login}{host}{after}" for host in hosts]


class NodeAddresses(Protocol):
    """Where the nodes of a cluster are, and what connects to them."""

    shown: str
    """The cluster's address for messages, without a login."""

    @property
    def seeds(self) -> Sequence[Node]:
        """Some nodes, from which the others are learned."""

    def url_of(self, node: Node) -> str:
        """The URL of one node."""

    def options_of(self, node: Node) -> dict[str, Any]:
        """Options of `ServerWire` for a connection to ``node``, beside its URL."""


class ClusterAddress:
    """A cluster by its URL. ``seeds``: the nodes that the URL names."""

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
        authority, mark, query = rest.partition("?")
        login, at, _ = authority.rpartition("@")
        host = f"[{node.host}]" if ":" in node.host else node.host
        return f"{scheme}://{login}{at}{host}:{node.port}{mark}{query}"

    def options_of(self, node: Node) -> dict[str, Any]:  # noqa: ARG002  the protocol has it
        return {"credentials": self.credentials}
