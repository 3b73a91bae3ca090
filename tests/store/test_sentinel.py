"""Which server a connection leads to where Sentinels know the primary."""

from __future__ import annotations

import re
from errno import ETIMEDOUT
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from pollconsumer.core.errors import ConfigurationError, PermissionDenied, StoreRefused, StoreUnreachable
from pollconsumer.interface.settings.values import check_store
from pollconsumer.store.client import patience, sentinel
from pollconsumer.store.client.address import SENTINEL_PORT, service_of, url_warnings
from pollconsumer.store.client.patience import Budget, Patience
from pollconsumer.store.client.replies import ErrorReply, Unanswered, raise_if_error
from pollconsumer.store.client.sentinel import ANSWER_WITHIN, Sentinels
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.suitability import Suitability
from tests.conftest import NAMESPACE
from tests.failovers.servers import SERVICE, Trio
from tests.interface.away import Connection
from tests.store.encrypted import Encrypted
from tests.store.relay import answering
from tests.store.servers import Impatient
from tests.store.test_suitability import Memo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pollconsumer.store.client.address import Address
    from pollconsumer.store.client.connection import Command
    from tests.store.servers import Server

PATIENCE = 30.0


@pytest.fixture(scope="module")
def trio() -> Iterator[Trio]:
    trio = Trio(password="canary", sentinel_password="another")
    yield trio
    trio.close()


def told(port: int) -> bytes:
    """A Sentinel's answer: the primary is on this machine, at ``port``."""
    return b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(port)), port)


def wire_to(*sentinels: str, options: str = "", patience: Callable[[], Patience] = Impatient) -> Wire:
    hosts = ",".join(each.removeprefix("redis://") for each in sentinels)
    return Wire(f"redis+sentinel://{hosts}/{SERVICE}{options}", patience)


def test_a_connection_leads_to_the_primary_each_with_the_password_of_its_own(trio: Trio) -> None:
    wire = Wire(trio.url, lambda: Budget(PATIENCE), greet=Suitability(NAMESPACE, Memo(), lambda _: None))
    assert wire.command("ROLE")[0] == b"master"
    assert wire.location == f"127.0.0.1:{trio.primary().port}"


@pytest.mark.crossing
def test_after_a_failover_what_was_connected_before_writes_to_the_new_primary(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the old one, which has not learnt of it yet, would still accept it."""
    monkeypatch.setattr(sentinel, "LOOK_EVERY", 0.0)
    wire = Wire(trio.url, lambda: Budget(PATIENCE))
    wire.command("SET", "a", 1)
    before = wire.location
    primary = trio.fail_over()
    wire.command("SET", "a", 2)
    assert wire.location == f"127.0.0.1:{primary.port}" != before
    assert primary.ask("GET", "a") == b"2"


@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [
        ("another", "wrong", PermissionDenied, "authentication failed: Sentinel: 127.0.0.1:"),
        ("sentinel_password=another", "", PermissionDenied, "check sentinel_username and sentinel_password"),
        ("canary", "wrong", PermissionDenied, "authentication failed; check user and password"),
        (SERVICE, "other", ConfigurationError, "store: service: other; no Sentinel knows it"),
    ],
)
def test_what_no_repetition_can_mend_is_said_at_once(
    old: str, new: str, error: type[Exception], said: str, trio: Trio
) -> None:
    with pytest.raises(error, match=said) as caught:
        Wire(trio.url.replace(old, new), lambda: Budget(PATIENCE)).command("PING")
    assert not re.search("canary|another|wrong", str(caught.value))


def test_a_server_that_is_no_sentinel_is_a_mistake_of_configuration() -> None:
    refusal = b"-ERR unknown command 'SENTINEL'\r\n"
    with answering(refusal, over_network=True) as url, pytest.raises(ConfigurationError, match="store: no Sentinel"):
        wire_to(url).command("PING")


def test_sentinels_that_are_away_are_named_and_the_next_one_is_asked(trio: Trio) -> None:
    with pytest.raises(StoreUnreachable, match=r"no Sentinel knows the primary; 127\.0\.0\.1:1: Connection refused"):
        wire_to("127.0.0.1:1").command("PING")
    wire = Wire(trio.url.replace("@127", "@127.0.0.1:1,127"), lambda: Budget(PATIENCE))
    assert wire.command("PING") == b"PONG"


def test_one_that_does_not_know_the_service_yet_is_not_believed_while_another_is_away() -> None:
    with (
        answering(b"*-1\r\n", over_network=True) as new,
        pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:1: Connection refused"),
    ):
        wire_to(new, "127.0.0.1:1").command("PING")


def test_a_server_that_is_a_replica_by_now_is_not_written_to(trio: Trio) -> None:
    port = next(each.port for each in trio.servers if each.ask("ROLE")[0] == b"slave")
    with (
        answering(told(port), over_network=True) as url,
        pytest.raises(StoreUnreachable, match=f"127.0.0.1:{port} is a replica; the Sentinels still name it"),
    ):
        wire_to(url, options="?password=canary").command("PING")


def test_a_right_to_ask_for_the_role_is_missed_by_its_name(trio: Trio) -> None:
    trio.primary().ask("ACL", "SETUSER", "some", "on", ">canary", "+ping")
    with pytest.raises(PermissionDenied, match=r"\+role"):
        Wire(trio.url.replace("//:canary", "//some:canary"), Impatient).command("PING")


@pytest.mark.parametrize("encrypted", ["ssl=true", "ssl=true&sentinel_ssl=false"])
def test_servers_and_sentinels_may_be_encrypted(
    encrypted: str, valkey: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentinel, "ANSWER_WITHIN", PATIENCE)  # a busy machine takes its time for a handshake
    authority = trustme.CA()
    certificates, said = tmp_path / "ca.pem", "sentinel_ssl" not in encrypted
    authority.cert_pem.write_to_path(certificates)
    primary = Encrypted(valkey.url, authority.issue_cert("127.0.0.1"))
    try:
        with answering(told(primary.port), over_network=not said) as url:
            before = Encrypted(url, authority.issue_cert("127.0.0.1")) if said else None
            place = f"127.0.0.1:{before.port}" if before else url
            options = f"?{encrypted}&ssl_ca_certs={certificates}"
            wire = wire_to(place, options=options, patience=lambda: Budget(PATIENCE))
            assert wire.command("PING") == b"PONG"
            wire.close()
            if before:
                before.close()
    finally:
        primary.close()


def test_tls_that_only_one_end_expects_is_a_mistake_of_configuration(trio: Trio) -> None:
    """Of a password that was given as well, nobody is told."""
    certificate = trustme.CA().issue_cert("127.0.0.1")
    encrypted = Encrypted("unix:///nowhere", certificate)
    place = f"127.0.0.1:{encrypted.port}"
    try:
        for given in ("", "?sentinel_password=another"):
            with pytest.raises(ConfigurationError, match=f"store: TLS: Sentinel {place} speaks it; give ssl=true"):
                wire_to(place, options=given).command("PING")
    finally:
        encrypted.close()
    port = trio.sentinels[0].port
    for options in ("?ssl=true", "?sentinel_ssl=true"):
        with pytest.raises(ConfigurationError, match=f"Sentinel 127.0.0.1:{port}: TLS: .*the port speaks no TLS"):
            wire_to(f"127.0.0.1:{port}", options=options).command("PING")


def test_one_that_hangs_up_is_tried_again_and_one_of_several_with_tls_is_left_out(trio: Trio) -> None:
    with answering(b"", over_network=True) as url, pytest.raises(StoreUnreachable):
        wire_to(url).command("PING")
    encrypted = Encrypted("unix:///nowhere", trustme.CA().issue_cert("127.0.0.1"))
    try:
        wire = Wire(trio.url.replace("@127", f"@127.0.0.1:{encrypted.port},127"), lambda: Budget(PATIENCE))
        assert wire.command("PING") == b"PONG"
    finally:
        encrypted.close()


@pytest.mark.parametrize("check", [Suitability.__call__, Suitability.check_server])
def test_a_url_of_a_server_that_leads_to_a_sentinel_says_so(
    check: Callable[[Suitability, Wire], None], trio: Trio
) -> None:
    suitability = Suitability(NAMESPACE, Memo(), lambda _: None)
    wire = Wire(f"redis://:another@127.0.0.1:{trio.sentinels[0].port}", Impatient)
    with pytest.raises(StoreRefused) as caught:
        check(suitability, wire)
    place = f"127.0.0.1:{trio.sentinels[0].port}"
    assert str(caught.value).startswith(f"store is a Sentinel: {place}; write redis+sentinel://{place}/SERVICE")


def test_a_reply_that_says_that_the_primary_is_none_any_more_is_repeated_elsewhere() -> None:
    for text in ("READONLY You can't write", "LOADING is", "MASTERDOWN Link", "UNBLOCKED force unblock, state changed"):
        with pytest.raises(Unanswered):
            raise_if_error(ErrorReply(text))


class Recording(Connection):
    """To the server ``place``, which answers each command with its number; it falls silent when asked to."""

    def __init__(self, place: str, sent: list[tuple[str, Command]]) -> None:
        super().__init__(self._answer_next)
        self.location = place
        self._sent = sent
        self._replies: list[Any] = []

    def send(self, commands: Sequence[Command]) -> None:
        self._sent += [(self.location, command) for command in commands]
        self._replies += [
            TimeoutError(ETIMEDOUT, "no answer") if command == ("SILENT",) else len(self._sent) for command in commands
        ]

    def _answer_next(self, _: float) -> Any:
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def test_a_client_that_was_given_up_is_killed_on_its_own_server_alone() -> None:
    """Clients of another server have the same numbers."""
    sent: list[tuple[str, Command]] = []
    places = iter(["one", "two", "one"])
    wire = Wire("redis://h", Impatient, connect=lambda: Recording(next(places), sent))
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            wire.command("SILENT")
        wire.close()
    wire.command("LOUD")
    killed = [(place, command[-1]) for place, command in sent if command[:2] == ("CLIENT", "KILL")]
    assert killed == [("one", 1)]


# Its URL


def test_a_url_names_sentinels_service_and_database_and_logins_for_both() -> None:
    name, sentinels, primary = service_of(
        "redis+sentinel://u:p%2F@h1:26380,[::1],h3/my/2?sentinel_username=s&sentinel_password=t&ssl=yes&ssl_ca_certs=f"
    )
    assert name == "my"
    assert [(each.host, each.port) for each in sentinels] == [
        ("h1", 26380),
        ("::1", SENTINEL_PORT),
        ("h3", SENTINEL_PORT),
    ]
    assert {(each.user, each.password, each.database) for each in sentinels} == {("s", "t", 0)}
    assert (primary.user, primary.password, primary.database, primary.tls) == ("u", "p/", 2, {"ssl_ca_certs": "f"})


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("redis+sentinel://h", "name the service after the Sentinels"),
        ("redis+sentinel://h:0/m", "write Sentinels as host:port"),
        ("redis+sentinel://h:65536/m", "write Sentinels as host:port"),
        ("redis+sentinel://h,/m", "write Sentinels as host:port"),
        ("redis+sentinel:///m", "write Sentinels as host:port"),
        ("redis+sentinel://a..b/m", "the host is no name"),
        ("redis+sentinel://h/m/x", "the database must be an integer"),
        ("redis+sentinel://h/m?se=cret", "known options: db, "),
        ("redis+sentinel://h/m?ssl_ca_certs=f", "an option for TLS needs ssl=true"),
        ("redis+sentinel://h/m?ssl=perhaps", "ssl must be true or false"),
        ("redis+sentinel://h/m?ssl=true&ssl_cert_reqs=some", "ssl_cert_reqs must be none, optional or required"),
        ("redis+sentinel://[h/m", "write Sentinels as host:port,host:port"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_by_its_rule(url: str, rule: str) -> None:
    checks: list[Callable[[str], object]] = [check_store, lambda url: Wire(url, Impatient)]
    for check in checks:
        with pytest.raises((ValueError, ConfigurationError), match=rule):
            check(url)


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("redis+sentinel://:p@127.0.0.1/m", False),
        ("redis+sentinel://10.0.0.1/m", False),
        ("redis+sentinel://:p@10.0.0.1/m?ssl=true", False),
        ("redis+sentinel://:p@10.0.0.1/m", True),
        ("redis+sentinel://10.0.0.1/m?sentinel_password=p", True),
        ("redis+sentinel://:p@10.0.0.1/m?ssl=true&sentinel_ssl=false", True),
    ],
)
def test_a_password_that_others_may_read_is_warned_of(url: str, warned: bool) -> None:
    assert any("unencrypted; add ssl=true" in doubt for doubt in url_warnings(url)) == warned


def test_silent_sentinels_take_no_longer_together_than_a_caller_would_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waited = [0.0], list[tuple[str, Any]]()

    def silent(_: Sentinels, asked: Address, timeout: float) -> None:
        waited.append((asked.host, pytest.approx(timeout)))
        now[0] += timeout
        raise TimeoutError(ETIMEDOUT, "no answer")

    for module in (sentinel, patience):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(Sentinels, "_ask", silent)
    sentinels = Sentinels("redis+sentinel://h1,h2,h3/mymaster")
    for _ in range(2):  # what the first call has no time for comes first in the second
        with pytest.raises(ConnectionError):
            sentinels.primary(0.6)
    assert waited == [("h1", ANSWER_WITHIN), ("h2", 0.1), ("h3", ANSWER_WITHIN), ("h1", 0.1)]


def test_a_look_at_a_silent_sentinel_takes_no_longer_than_its_caller_would_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = list[float]()

    def silent(_: Sentinels, __: Address, timeout: float) -> None:
        waited.append(timeout)
        raise TimeoutError(ETIMEDOUT, "no answer")

    monkeypatch.setattr(Sentinels, "_ask", silent)
    sentinels = Sentinels("redis+sentinel://h1,h2/mymaster")
    assert not sentinels.moved_from(sentinels.login, lambda: Budget(0.2))
    assert 0 < waited[0] <= 0.2
    assert not Sentinels("redis+sentinel://h1,h2/mymaster").moved_from(sentinels.login, lambda: Budget(0.0))
    assert len(waited) == 1
