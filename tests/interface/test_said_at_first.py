"""Lines that a person meets early say what is wrong, and what to type."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import pytest

from pollconsumer.core.choices import HandOff
from pollconsumer.interface.cli.installation.check import described_window, next_window
from pollconsumer.interface.settings.model import ConsumerSettings

if TYPE_CHECKING:
    from tests.site import Site

REFUSED = {
    ("enqueue", "record", "name=a"): """payload is not JSON: name=a; write '{"name": "a"}'""",
    ("enqueue", "record", '{"n": 1'): "payload is not JSON: {\"n\": 1; Expecting ',' delimiter, at column 8",
    ("enqueue", "record", "{'n': 'a b', 'm': '', 'k': [True, None, -1.5, 'x']}"): """payload is not JSON: \
{'n': 'a b', 'm': '', 'k': [True, None, -1.5, 'x']}; write \
'{"n": "a b", "m": "", "k": [true, null, -1.5, "x"]}'""",
    ("enqueue", "record", "{to: ada@example.org, n: 007}"): """payload is not JSON: {to: ada@example.org, n: 007}; \
write '{"to": "ada@example.org", "n": "007"}'""",
    ("enqueue", "record", '{to: "it\'s"}'): """payload is not JSON: {to: "it's"}; write '{"to": "it'"'"'s"}'""",
    ("enqueue", "record", "{at: 10:30}"): "payload is not JSON: {at: 10:30}; Expecting property name enclosed in \
double quotes, at column 2",
    ("dead", "redrive"): "no dead letters chosen; give ids, --all, --handler, --header, --created-by or --queue",
    ("dead", "redrive", "a", "--all"): "ids and a selection; give one of the two",
    ("launches", "--gaps", "--ago"): "--gaps and --ago; give one of the two",
    ("list", "dead"): "unexpected argument: dead; a state is given as --state dead",
    ("list", "failed"): "unexpected argument: failed; a state is given as --state dead",
    ("list", "slow"): "unexpected argument: slow; a queue is given as --queue slow; see 'pollconsumer list --help'",
    ("run", "--with-scheduler"): "unknown option: --with-scheduler; leave it out: each launch promotes what comes due",
    ("store", "reopen"): "not reopened; make sure first that the export was not imported elsewhere, then --yes",
}


@pytest.mark.parametrize(("typed", "said"), REFUSED.items(), ids=lambda value: " ".join(value)[:30])
def test_a_refusal_says_what_to_type(site: Site, typed: tuple[str, ...], said: str) -> None:
    assert site.command(*typed).stderr == f"pollconsumer: error: {said}\n"


def test_check_says_when_a_launch_ends_in_words(site: Site) -> None:
    shown = site.command("check").stdout
    rows = [line.split("  ")[0].removeprefix("consumer ") for line in shown.splitlines() if line.startswith("consumer")]
    assert rows == ["launcher", "window", "schedule", "takes no new message after", "killed if it still runs at"]
    assert "; a new launch may start beside a running one" in shown
    assert "none; a launch runs for 1m" in shown


@pytest.mark.parametrize(
    ("handoff", "margin", "said"), [("deadline", 30, 30), ("deadline", None, 58), ("baton", 30, 60)]
)
def test_check_names_the_last_instant_at_which_a_message_is_taken(
    handoff: str, margin: float | None, said: int
) -> None:
    begin = datetime(2030, 1, 31, 12, tzinfo=UTC)
    settings = ConsumerSettings(min_margin=2.0)
    window = next_window(settings, begin, [], 300.0, None) | {"stop_before": (begin + timedelta(minutes=1)).isoformat()}
    row = dict(described_window(window, HandOff(handoff), margin))["takes no new message after"]
    assert datetime.fromisoformat(row) == begin + timedelta(seconds=said)


def test_check_says_how_much_of_a_long_period_launches_leave_unserved(site: Site) -> None:
    def unserved(timeout: str, schedule: str) -> str | None:
        settings = {"POLLCONSUMER_CONSUMER__TIMEOUT": timeout, "POLLCONSUMER_CONSUMER__SCHEDULE": schedule}
        return cast("str | None", json.loads(site.command("check", "--json", **settings).stdout)["unserved"])

    assert unserved("1m", "*/5 * * * *") == (
        "80% of each 5m: a launch ends after 1m, and the next one starts 5m after it started; "
        'consumer.timeout = "5m" would serve it'
    )
    assert unserved("5m", "*/5 * * * *") is None
    assert unserved("1m", "* * * * *") is None
