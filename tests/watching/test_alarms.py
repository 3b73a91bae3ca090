"""People are told of each finding once when it begins and once when it ends, in the form that their service takes."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.errors import ConfigurationError, StoreUnreachable
from pollconsumer.core.launcher import UNLEARNED_EXIT
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.interface.settings.model import SECTIONS, Settings
from pollconsumer.interface.settings.values import DURATION_ALARMS, duration_alarms
from pollconsumer.runtime.launch.pings import Failed
from pollconsumer.store.store import Store
from pollconsumer.watching import alarms
from pollconsumer.watching.alarms import (
    AGAIN_AFTER_MS,
    LAPSED_AFTER_MS,
    MOST_CHARACTERS,
    FindingTeller,
    LaunchAlarms,
    ReportedFinding,
    changes,
    form_of,
    request_of,
)
from pollconsumer.watching.facts import Finding
from tests.conftest import NAMESPACE
from tests.store.servers import Impatient

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pollconsumer.runtime.launch.pings import Ping
    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server

NOW = 1_900_000_000_000
BEHIND = Finding("oldest_ready", "mail", "queue mail is behind", "<5> & more", "raise it")
SKEWED = Finding("clock_skew", None, "clocks differ", "by 3s", "synchronise both")
FULL = Finding("memory", None, "memory nearly full", "99 %", "raise maxmemory")
WITH_CHANNEL = Settings(namespace="shop", doctor=SECTIONS["doctor"](url="https://example.org/secret"))
PAGE = "https://example.org/queue?a=1&b=2"


def said(told: ReportedFinding, page: str | None = PAGE) -> dict[str, str | None]:
    return told.texts(NOW + 90_000, "shop", page)


BEGUN, ENDED = ReportedFinding(BEHIND, NOW, NOW, "me"), ReportedFinding(BEHIND, NOW, NOW, "me", NOW + 90_000)
TEXT = "shop: queue mail is behind: <5> & more; raise it"


def body(url: str, told: ReportedFinding = BEGUN) -> Any:
    ping = request_of(url, said(told))
    assert (ping.url, ping.content) == (url, "application/json")
    assert ping.body is not None
    return json.loads(ping.body)


@pytest.mark.parametrize(
    ("host", "form"),
    [
        ("hooks.slack.com", "slack"),
        ("hooks.slack-gov.com", "slack"),
        ("discord.com", "discord"),
        ("canary.discord.com", "discord"),
        ("discordapp.com", "discord"),
        ("tenant.webhook.office.com", "teams"),
        ("prod-01.westus.logic.azure.com:443", "teams"),
        ("default0a.1b.environment.api.powerplatform.com:443", "teams"),
        ("ntfy.sh", "ntfy"),
        ("ntfy.example.org", "ntfy"),
        ("example.org", "json"),
        ("myhooks.slack.com.example.org", "json"),
        ("notdiscord.com", "json"),
    ],
)
def test_the_form_is_that_of_the_host(host: str, form: str) -> None:
    assert form_of(f"https://{host}/services/T0/B0/secret") == form


def test_slack_is_sent_text_in_which_nothing_is_a_mention_or_a_link() -> None:
    assert body("https://hooks.slack.com/services/T0") == {
        "text": "shop: queue mail is behind: &lt;5&gt; &amp; more; raise it\nhttps://example.org/queue?a=1&amp;b=2"
    }


def test_discord_is_sent_content_that_mentions_nobody() -> None:
    assert body("https://discord.com/api/webhooks/1/x") == {
        "content": f"{TEXT}\n{PAGE}",
        "allowed_mentions": {"parse": []},
    }


def test_teams_is_sent_an_adaptive_card() -> None:
    (attached,) = body("https://t.webhook.office.com/webhookb2/x")["attachments"]
    assert attached["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert attached["content"] == {
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "TextBlock", "text": f"{TEXT}\n\n{PAGE}", "wrap": True}],
    }


def test_ntfy_is_sent_plain_text_whose_title_and_page_are_in_the_query() -> None:
    ping = request_of("https://ntfy.sh/topic?priority=high", said(BEGUN))
    assert (ping.body, ping.content) == (f"{TEXT}\n{PAGE}".encode(), "text/plain; charset=utf-8")
    query = parse_qs(urlsplit(ping.url).query)
    assert query == {"priority": ["high"], "title": ["shop: queue mail is behind"], "click": [PAGE]}
    assert "click" not in request_of("https://ntfy.sh/topic", said(BEGUN, None)).url


def test_any_other_is_sent_the_fields_of_the_finding() -> None:
    fields = BEHIND._asdict() | {"namespace": "shop", "page": PAGE, "since": "2030-03-17T17:46:40.000Z"}
    url = "https://example.org/hook"
    begun = {"title": "shop: queue mail is behind", "text": f"{TEXT}\n{PAGE}", "state": "began"}
    assert body(url) == fields | begun
    resolved = "shop: resolved: queue mail is behind"
    ended = {"title": resolved, "text": f"{resolved} (for 1m 30s)\n{PAGE}", "state": "ended"}
    assert body(url, ENDED) == fields | ended | {"value": None, "fix": None}


@given(st.text(max_size=3000), st.text(max_size=3000))
def test_any_text_is_one_line_of_bounded_length_and_fits_each_form(what: str, value: str) -> None:
    told = ReportedFinding(Finding("a", None, what, value, "fix"), NOW, NOW, "me")
    text = said(told, None)["text"]
    assert text is not None
    assert len(text) <= MOST_CHARACTERS
    assert text.isprintable()
    for host in "hooks.slack.com", "discord.com", "a.webhook.office.com", "ntfy.sh", "example.org":
        assert request_of(f"https://{host}/x", said(told)).body


# What is news


def names(
    found: Mapping[str, Finding], told: Mapping[str, ReportedFinding], now: int, who: str = "me"
) -> dict[str, bool]:
    """By name, whether people are told; changes ``told`` as the store is changed."""
    assert isinstance(told, dict)
    news = dict[str, bool]()
    for name, each, prints_traceback_of in changes(found, dict(told), lambda _: who, now):
        if prints_traceback_of:
            assert each is not None
            news[name] = not each.ended
        if each is None:
            del told[name]
        else:
            told[name] = each
    return news


def test_a_finding_is_told_when_it_begins_and_when_it_ends_and_not_in_between() -> None:
    told = dict[str, ReportedFinding]()
    assert names({"a": BEHIND}, told, NOW) == {"a": True}
    assert names({"a": BEHIND}, told, NOW + 60_000) == {}
    assert names({"a": BEHIND}, told, NOW + 10 * LAPSED_AFTER_MS) == {}
    assert names({}, told, NOW + 10 * LAPSED_AFTER_MS + 1) == {"a": False}
    assert names({}, told, NOW + 10 * LAPSED_AFTER_MS + 2) == {}


def test_a_finding_that_comes_and_goes_is_told_again_once_five_minutes_have_passed() -> None:
    told = dict[str, ReportedFinding]()
    names({"a": BEHIND}, told, NOW)
    names({}, told, NOW + 1)
    assert names({"a": BEHIND}, told, NOW + AGAIN_AFTER_MS) == {}
    assert names({}, told, NOW + AGAIN_AFTER_MS) == {}  # nobody heard of it
    assert names({"a": BEHIND}, told, NOW + AGAIN_AFTER_MS + 1) == {"a": True}


def test_an_end_is_forgotten_after_the_same_time_or_when_the_clock_was_set_back() -> None:
    for later in AGAIN_AFTER_MS + 1, -1:
        told = dict[str, ReportedFinding]()
        names({"a": BEHIND}, told, NOW)
        names({}, told, NOW + 1)
        names({}, told, NOW + later)
        assert told == {}


def test_what_another_configuration_finds_is_not_ended_by_one_that_does_not_find_it() -> None:
    told = dict[str, ReportedFinding]()
    names({"a": BEHIND}, told, NOW, "web1")
    assert names({}, told, NOW + LAPSED_AFTER_MS - 1, "web2") == {}
    assert names({"a": BEHIND}, told, NOW + LAPSED_AFTER_MS, "web2") == {}
    assert names({}, told, NOW + LAPSED_AFTER_MS + 1, "web1") == {}
    assert names({}, told, NOW + LAPSED_AFTER_MS + 1, "web2") == {"a": False}


def test_what_another_configuration_found_ends_when_that_has_not_come_for_an_hour() -> None:
    told = dict[str, ReportedFinding]()
    names({"a": BEHIND}, told, NOW, "web1")
    assert names({}, told, NOW + LAPSED_AFTER_MS, "web2") == {"a": False}


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 2 * AGAIN_AFTER_MS), st.sampled_from("xy")), max_size=40))
def test_beginnings_and_ends_take_turns_and_beginnings_are_rare(looks: list[tuple[bool, int, str]]) -> None:
    told, now, heard = dict[str, ReportedFinding](), NOW, list[tuple[int, bool]]()
    for is_there, later, who in looks:
        now += later
        news = names({"a": BEHIND} if is_there else {}, told, now, who)
        heard += [(now, begins) for begins in news.values()]
    assert [begins for _, begins in heard] == [at % 2 == 0 for at in range(len(heard))]
    ends_and_beginnings = zip(heard[1::2], heard[2::2], strict=False)
    assert all(begun - ended >= AGAIN_AFTER_MS for (ended, _), (begun, _) in ends_and_beginnings)


# Telling


class Heard:
    """Takes requests in the place of the network. ``fails``: what they are answered."""

    def __init__(self) -> None:
        self.pings: list[Ping] = []
        self.fails: Failed | None = None

    def delivered(self, ping: Ping, within: float) -> Failed | None:
        assert within > 0
        self.pings.append(ping)
        return self.fails

    def told(self) -> list[str]:
        """The titles since the last call."""
        found = [json.loads(ping.body or b"")["title"] for ping in self.pings]
        self.pings.clear()
        return found


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    heard = Heard()
    monkeypatch.setattr(alarms, "delivered", heard.delivered)
    return heard


@pytest.fixture
def teller(wire: Wire) -> FindingTeller:
    return FindingTeller(WITH_CHANNEL, Store(wire, NAMESPACE))


def report(teller: FindingTeller, *findings: Finding, now: int = NOW, left: float = 60.0) -> list[str]:
    return teller.report(findings, now, lambda: left)


def test_each_is_told_once_of_several(teller: FindingTeller, heard: Heard) -> None:
    assert report(teller, BEHIND) == []
    assert heard.told() == ["shop: queue mail is behind"]
    assert report(teller, SKEWED, BEHIND) == []
    assert heard.told() == ["shop: clocks differ"]
    assert report(teller, now=NOW + 1000) == []
    assert sorted(heard.told()) == ["shop: resolved: clocks differ", "shop: resolved: queue mail is behind"]


def test_one_looks_at_a_time_until_it_has_told_or_failed(teller: FindingTeller) -> None:
    with teller.turn() as is_first:
        with teller.turn() as is_second:
            assert (is_first, is_second) == (True, False)
        with teller.turn() as is_second:
            assert not is_second
    with pytest.raises(ValueError, match="a look that failed"), teller.turn():
        raise ValueError("a look that failed")
    with teller.turn() as is_next:
        assert is_next


@pytest.mark.parametrize(
    ("setting", "says"), [("maxmemory", "OOM .*: raise maxmemory"), ("min-replicas-to-write", "NOREPLICAS ")]
)
def test_a_store_that_cannot_write_is_told_of_by_each_look_of_a_person_and_by_no_launch(
    valkey: Server, heard: Heard, setting: str, says: str
) -> None:
    wire = valkey.wire(Impatient)
    teller = FindingTeller(WITH_CHANNEL, Store(wire, NAMESPACE))
    wire.command("CONFIG", "SET", setting, 1)
    try:
        for _ in range(2):
            with teller.turn(unrecorded=True) as is_ours:
                assert is_ours
                (problem,) = report(teller, FULL)
                assert re.match(f"alarms: not recorded: store .* it says: {says}", problem)
            assert heard.told() == ["shop: memory nearly full"]
        with pytest.raises(StoreUnreachable, match=says), teller.turn():
            pass
    finally:
        wire.command("CONFIG", "SET", setting, 0)
    assert report(FindingTeller(WITH_CHANNEL, Store(wire, NAMESPACE)), FULL) == []
    assert heard.told() == ["shop: memory nearly full"]


def test_there_is_no_turn_where_nobody_is_to_be_told(wire: Wire) -> None:
    with FindingTeller(Settings(), Store(wire, NAMESPACE)).turn() as is_ours:
        assert not is_ours


def test_what_was_not_delivered_is_told_by_the_next_look_and_is_named_by_its_host(
    teller: FindingTeller, heard: Heard
) -> None:
    heard.fails = Failed("it answers 503", again=True)
    assert report(teller, BEHIND, SKEWED) == ["alarms: example.org: it answers 503"]
    assert len(heard.told()) == 1  # nothing more is tried
    heard.fails = None
    assert report(teller, BEHIND, SKEWED) == []
    assert heard.told() == ["shop: queue mail is behind", "shop: clocks differ"]


def test_after_failures_fewer_and_fewer_looks_try_again_until_one_is_taken(teller: FindingTeller, heard: Heard) -> None:
    heard.fails = Failed("it answers 404", again=False)
    tried = []
    for look in range(1, 200):
        report(teller, BEHIND)
        tried += [look] * len(heard.told())
    assert tried == [1, 2, 4, 8, 16, 32, 64, 128, 192]
    heard.fails = None
    while not heard.told():
        report(teller, BEHIND)
    report(teller, SKEWED, BEHIND)
    assert heard.told() == ["shop: clocks differ"]


@pytest.mark.parametrize(("left", "most"), [(60.0, UNLEARNED_EXIT), (0.8, 0.8)])
def test_a_launch_tells_in_the_time_of_an_exit_and_before_it_is_cut_off_whoever_does_not_answer(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, left: float, most: float
) -> None:
    waited = [0.0]

    def hang(_: object, __: object, within: float) -> str:
        waited.append(within)
        return "nobody answers in time"

    clock = SimpleNamespace(monotonic=lambda: sum(waited))
    opener = SimpleNamespace(bare_wire=lambda _: wire)
    for name, found in (
        ("time", clock), ("opener_of", lambda *_, **__: opener), ("send_request", hang), ("send_mail", hang),
        ("look", lambda *_: (SimpleNamespace(now=NOW), [BEHIND, SKEWED])),
    ):  # fmt: skip
        monkeypatch.setattr(alarms, name, found)
    doctor = SECTIONS["doctor"](url="https://example.org/secret", mail="ops@example.org")
    told = LaunchAlarms(Settings(namespace=NAMESPACE, doctor=doctor), lambda _: None, shows_completed=False)
    told.report(lambda: left - sum(waited))
    assert 0.5 < sum(waited) <= most


def test_what_does_not_fit_is_told_by_the_next_look(teller: FindingTeller, heard: Heard) -> None:
    for _ in range(4):  # looks that had no time have not failed: the next one tries
        assert report(teller, BEHIND, left=0.25) == []
    assert heard.told() == []
    report(teller, BEHIND)
    assert heard.told() == ["shop: queue mail is behind"]


@pytest.mark.parametrize(
    "corrupt",
    [b"", b"{", b"[]", b"7", b'["a", null, "b", "c", "d", 1e300, 1, "me", 0]', b"[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"],
)
def test_a_corrupt_field_is_as_none(corrupt: bytes, teller: FindingTeller, heard: Heard, wire: Wire) -> None:
    wire.command("HSET", Store(wire, NAMESPACE).keys.control("findings"), "oldest_ready\nqueue mail is behind", corrupt)
    assert report(teller, BEHIND) == []
    assert heard.told() == ["shop: queue mail is behind"]
    assert report(teller) == []
    assert heard.told() == ["shop: resolved: queue mail is behind"]


# Settings


@given(
    st.dictionaries(
        st.from_regex(r"[a-z.]{1,9}", fullmatch=True),
        st.dictionaries(st.sampled_from(DURATION_ALARMS), st.integers(1, 10**6)),
    )
)
def test_limits_are_read_in_seconds_whether_written_as_numbers_or_with_units(given: dict[str, dict[str, int]]) -> None:
    written = {name: {key: f"{seconds}s" for key, seconds in limits.items()} for name, limits in given.items()}
    assert duration_alarms(written) == duration_alarms(given) == given


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


DURATION, TABLE = "write a duration, as in 500ms or 10m", 'write a table, as in { slower_than = "10m" }'
ADDRESS = "its host or port is not valid: write https://HOST/… or https://HOST:PORT/…"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (
            "[alarms.handlers.render]\nslower = '10m'",
            "alarms.handlers.render.slower: unknown key; did you mean slower_than?",
        ),
        ("[alarms.handlers.render]\nslower_than = 'soon'", f"alarms.handlers.render.slower_than: 'soon'; {DURATION}"),
        ("[alarms.handlers.render]\nfaster_than = 0", f"alarms.handlers.render.faster_than: 0; {DURATION}"),
        ("[alarms.handlers]\nrender = '10m'", f"alarms.handlers.render: '10m'; {TABLE}"),
        ("[doctor]\nmail = 'a, b'", "doctor.mail: a, b; write one address, as in ops@example.org"),
        ("[doctor]\nmail = '-oQ/tmp'", "doctor.mail: -oQ/tmp; write one address, as in ops@example.org"),
        ("[doctor]\nurl = 'hooks.example/secret'", "doctor.url: ***; write https://HOST/…, without spaces"),
        ("[doctor]\nurl = 'https://h:0/secret'", f"doctor.url: https://h:0/***; {ADDRESS}"),
        ("[queues.mail]\nwait_alarm = '0s'", "queues.mail.wait_alarm: 0s; must be > 0, and at most 365d"),
    ],
)
def test_a_wrong_value_is_one_clear_line_without_a_secret(written: str, problem: str, place: Path) -> None:
    (place / "config.toml").write_text(written)
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert str(refused.value) == f"config.toml: {problem}"
