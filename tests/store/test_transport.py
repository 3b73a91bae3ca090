"""TLS that fails for good is a matter of the URL, told at once; and what may be read on the way is warned of."""

from __future__ import annotations

import datetime
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trustme

from pollconsumer.core.errors import ConfigurationError, StoreUnreachable
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.runtime.system.own_files import OwnFiles
from pollconsumer.store.client.address import address_of, url_warnings
from pollconsumer.store.client.connection import SocketConnection
from pollconsumer.store.client.patience import COMMAND_TIMEOUT, Budget, Patience
from pollconsumer.store.client.transport import tls_refusal
from pollconsumer.store.client.wire import Wire
from tests.store.encrypted import Encrypted
from tests.store.relay import Listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.store.servers import Server

    Make = Callable[..., Encrypted]
LONG = 60.0
"""Seconds of patience that nothing here may use up."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


@pytest.fixture
def make(valkey: Server, authority: trustme.CA) -> Iterator[Make]:
    made: list[Encrypted] = []

    def make(*names: str, client_ca: trustme.CA | None = None, expired: bool = False) -> Encrypted:
        at = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) if expired else None
        certificate = authority.issue_cert(*(names or ("localhost",)), not_after=at)
        made.append(Encrypted(valkey.url, certificate, client_ca=client_ca))
        return made[-1]

    yield make
    for each in made:
        each.close()


class OneMoreTry(Patience):
    def __init__(self) -> None:
        self._tries = 1

    def left(self) -> float:
        self._tries -= 1
        return self._tries + 1.0

    def pause(self, seconds: float) -> None:
        """It is the number of tries that is looked at."""

    def for_one_answer(self, blocking: float = 0.0) -> float:  # noqa: ARG002  the protocol has it
        return COMMAND_TIMEOUT


def ping(url: str, patience: Callable[[], Patience] = lambda: Budget(LONG)) -> object:
    wire = Wire(url, patience)
    try:
        return wire.command("PING")
    finally:
        wire.close()


def refusal(url: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        ping(url)
    assert refused.value.exit_code == 78
    return str(refused.value)


def test_a_server_whose_certificate_is_vouched_for_is_used(make: Make, ca_file: Path) -> None:
    assert ping(f"rediss://localhost:{make().port}?ssl_ca_certs={ca_file}") == b"PONG"


def test_a_proxy_in_front_of_many_servers_is_told_which_one_is_meant(make: Make, ca_file: Path) -> None:
    server = make()
    ping(f"rediss://localhost:{server.port}?ssl_ca_certs={ca_file}")
    assert server.asked_for == ["localhost"]


def test_a_certificate_of_an_unknown_authority_is_refused_at_once_and_names_the_option(make: Make) -> None:
    server = make()
    assert "ssl_ca_certs=FILE" in refusal(f"rediss://localhost:{server.port}")
    assert server.connections == 1


def test_a_certificate_for_another_name_is_refused_and_names_both_ways_out(make: Make, ca_file: Path) -> None:
    text = refusal(f"rediss://localhost:{make('redis.example').port}?ssl_ca_certs={ca_file}")
    assert "'localhost'" in text
    assert "ssl_check_hostname=false" in text


def test_a_certificate_for_another_address_is_refused(make: Make, ca_file: Path) -> None:
    assert "127.0.0.1" in refusal(f"rediss://127.0.0.1:{make().port}?ssl_ca_certs={ca_file}")


def test_a_certificate_that_has_expired_is_refused(make: Make, ca_file: Path) -> None:
    text = refusal(f"rediss://localhost:{make(expired=True).port}?ssl_ca_certs={ca_file}")
    assert text == "store: TLS: certificate has expired; renew the server's certificate"


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile"])
def test_a_file_that_is_missing_is_named_with_its_option(make: Make, tmp_path: Path, option: str) -> None:
    missing = tmp_path / "missing.pem"
    text = refusal(f"rediss://localhost:{make().port}?{option}={missing}")
    assert f"{option}={missing} cannot be read" in text


def test_a_file_that_holds_no_certificate_is_named_by_its_option(make: Make, tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("none\n")
    assert "check ssl_ca_certs" in refusal(f"rediss://localhost:{make().port}?ssl_ca_certs={tmp_path / 'none.pem'}")


def test_a_key_without_its_certificate_is_refused_and_the_option_is_named(make: Make, ca_file: Path) -> None:
    assert "name its file, too: ssl_certfile=FILE" in refusal(f"rediss://localhost:{make().port}?ssl_keyfile={ca_file}")


def test_a_requirement_that_there_is_not_is_refused_before_anything_is_connected(make: Make) -> None:
    server = make()
    assert "ssl_cert_reqs" in refusal(f"rediss://localhost:{server.port}?ssl_cert_reqs=some")
    assert server.connections == 0


def test_a_server_that_wants_a_certificate_of_ours_is_refused_and_names_the_options(
    make: Make, authority: trustme.CA, ca_file: Path
) -> None:
    server = make(client_ca=authority)
    text = refusal(f"rediss://localhost:{server.port}?ssl_ca_certs={ca_file}")
    assert "ssl_certfile=FILE, ssl_keyfile=FILE" in text


@pytest.mark.parametrize("answer", [b"-ERR unknown command\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_speaks_no_tls_is_refused(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        text = refusal(f"rediss://localhost:{listening.getsockname()[1]}")
        thread.join(90)
    assert (
        text
        == "store: TLS: wrong version number; the port speaks no TLS: name one that does, or leave TLS out of the URL"
    )


def test_a_server_without_tls_that_waits_for_the_end_of_a_command_is_refused() -> None:
    """As each server does that takes a handshake for one."""
    asked: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        while line := connection.recv(65536):
            asked.append(line)
            if line == b"PING\r\n":
                connection.sendall(b"-NOAUTH Authentication required.\r\n")

    listening = Listening(serve, over_network=True)
    try:
        address = address_of(listening.url.replace("redis:", "rediss:"))
        with pytest.raises(ssl.SSLError) as caught:
            SocketConnection(address).connect(0.2)
        assert "speaks no TLS" in str(tls_refusal(caught.value, {}, established=False))
    finally:
        listening.close()
    assert asked[1:] == [b"PING\r\n"]


def test_a_server_that_hangs_up_in_the_middle_may_be_starting_and_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepted = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    accepted.append(connection)
                    connection.recv(4096)
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(StoreUnreachable):
            ping(f"rediss://localhost:{listening.getsockname()[1]}", OneMoreTry)
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(90)
    assert len(accepted) == 2


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("rediss://redis.example?ssl_cert_reqs=none", "ssl_cert_reqs=none"),
        ("redis://:secret@redis.example", "redis.example"),
        ("redis://user:secret@10.0.0.7:6380/1", "10.0.0.7"),
        ("redis://redis.example?password=secret", "redis.example"),
    ],
)
def test_what_may_be_read_on_the_way_is_warned_of_once_without_the_secret(url: str, said: str) -> None:
    (warning,) = url_warnings(url)
    assert said in warning
    assert "secret" not in warning


@pytest.mark.parametrize(
    "url",
    [
        "redis://redis.example",
        "redis://:secret@localhost",
        "redis://:secret@127.0.0.2:6379",
        "redis://:secret@[::1]:6379",
        "rediss://:secret@redis.example",
        "rediss://:secret@redis.example?ssl_cert_reqs=required",
        "unix://:secret@/run/valkey.sock",
    ],
)
def test_what_nobody_else_can_read_is_not_warned_of(url: str) -> None:
    assert list(url_warnings(url)) == []


def test_opening_such_a_store_warns_once() -> None:
    said: list[str] = []
    opener = StoreOpener("redis://:secret@redis.example", "tests", said.append, OwnFiles([]))
    opener.wire(lambda: Budget(0))
    opener.bare_wire(lambda: Budget(0))
    assert len(said) == 1


def test_a_store_without_tls_is_opened_without_importing_ssl() -> None:
    opening = """
import sys
from pollconsumer.runtime.system.own_files import OwnFiles
from pollconsumer.runtime.store_opener import StoreOpener
StoreOpener("redis://localhost", "n", print, OwnFiles([])).wire(print)
print("ssl" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", opening], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("url", ["redis://far", "redis+sentinel://far/service", "redis+cluster://far"])
def test_credentials_that_go_to_another_host_unencrypted_are_warned_of(url: str) -> None:
    assert list(url_warnings(url)) == []
    (warning,) = url_warnings(url, logs_in=True)
    assert "unencrypted" in warning
