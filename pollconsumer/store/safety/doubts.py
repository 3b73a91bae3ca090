"""Warnings about connections that others may read. Without ``ssl``: every launch with a URL asks for them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from pollconsumer.store.client.address import several_hosts


def doubts(url: str, *, logs_in: bool = False) -> Iterator[str]:
    """Warnings about insecure options of ``url``. ``logs_in``: a password is sent that the URL does not have."""
    if not url.startswith("redis+cluster:"):
        return _doubts(url, "use rediss://", logs_in)
    from pollconsumer.store.cluster.cluster_address import server_urls  # few stores are clusters

    of_nodes = [doubt for each in server_urls(url) for doubt in _doubts(each, "add ssl=true", logs_in)]
    return iter(dict.fromkeys(of_nodes))


def _doubts(url: str, encrypt: str, logs_in: bool) -> Iterator[str]:
    """Warnings about the URL of one server, or of servers behind Sentinels. ``encrypt`` says how to have TLS."""
    login, _, _, asked = several_hosts(url)
    if asked.get("ssl_cert_reqs", "").lower() in ("none", "optional"):
        yield "store: ssl_cert_reqs=none: anybody in between can read and change everything; name its CA instead"
    password = logs_in or login.removesuffix("@").partition(":")[2] or {"password", "sentinel_password"} & asked.keys()
    if url.startswith("redis:") and password and (host := urlsplit(url).hostname) and not _is_loopback(host):
        yield f"store: the password goes to {host} unencrypted; {encrypt}"
    if url.startswith("redis+sentinel:") and password:
        from pollconsumer.store.client.sentinel import service_of  # few stores have Sentinels

        _, sentinels, primary = service_of(url)
        far = [each.host for each in sentinels if not _is_loopback(each.host)]
        if far and (primary.tls is None or sentinels[0].tls is None):
            yield f"store: the password goes to {far[0]} and its like unencrypted; add ssl=true"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
