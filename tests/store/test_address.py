"""The URL of a store: what it may say, and what it is refused for."""

from __future__ import annotations

import pytest

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.store.client.address import address_of


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("redis://", "localhost", 6379, ""),
        ("redis://db", "db", 6379, ""),
        ("redis://[::1]:7000/", "::1", 7000, ""),
        ("rediss://db:6380", "db", 6380, ""),
        ("unix:///run/a%20b/s", "localhost", 6379, "/run/a b/s"),
        ("unix://user:word@/run/s?db=3", "localhost", 6379, "/run/s"),
    ],
)
def test_a_url_names_a_host_and_port_or_a_socket(url: str, host: str, port: int, path: str) -> None:
    address = address_of(url)
    assert (address.host, address.port, address.path) == (host, port, path)


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("redis://db", []),
        ("redis://db/0", []),
        ("redis://db/7", [("SELECT", 7)]),
        ("redis://db/7?db=8", [("SELECT", 8)]),
        ("unix:///run/s?db=3", [("SELECT", 3)]),
        ("redis://:w%40rd@db", [("AUTH", "w@rd")]),
        ("redis://me:word@db/1", [("AUTH", "me", "word"), ("SELECT", 1)]),
        ("redis://db?username=me&password=w%2520", [("AUTH", "me", "w%20")]),
        ("redis://me@db", [("AUTH", "me", "")]),
    ],
)
def test_a_connection_begins_with_the_login_and_the_database_of_its_url(url: str, login: list[tuple[object]]) -> None:
    assert address_of(url).login() == login


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("http://db", "one of embedded, redis://, rediss://, unix://, redis+sentinel://, redis+cluster://"),
        ("db:6379", "one of embedded, redis://, rediss://, unix://, redis+sentinel://, redis+cluster://"),
        ("redis://db:99999", "not a URL that can be read"),
        ("redis://[::1", "not a URL that can be read"),
        ("redis://db?x", "not a URL that can be read"),
        ("redis://db/main", "the database must be a number"),
        ("redis://db/-1", "the database must be a number"),
        ("redis://db/١", "the database must be a number"),
        ("unix://", "it names no socket: unix:///PATH"),
        ("redis://db?socket_timeout=1", "unknown option socket_timeout"),
        ("redis://db?ssl_ca_certs=ca.pem", "unknown option ssl_ca_certs"),
        ("rediss://db?ssl_cert_reqs=never", "ssl_cert_reqs must be none, optional or required"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_before_anything_is_connected(url: str, fix: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        address_of(url)
    assert fix in str(caught.value)


@pytest.mark.parametrize(
    "url", ["redis://:s3cret@db/x", "redis://db/x?password=s3cret", "redis://db?password=s3cret&x=1"]
)
def test_the_secret_of_a_url_is_in_no_refusal(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        address_of(url)
    assert "s3cret" not in str(caught.value)
