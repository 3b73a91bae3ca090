"""Every panel of the Grafana dashboard, and every alert, reads metrics that there are."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.interface.deployed import DEPLOY
from tests.site import Site
from tests.watching.test_metrics import parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

PANELS = {
    panel["title"]: [target["expr"] for target in panel["targets"]]
    for panel in json.loads((DEPLOY / "grafana" / "pollconsumer.json").read_text())["panels"]
}
ALERTS = re.findall(r"alert: (\w+)\n +expr: (.+)", (DEPLOY / "prometheus" / "alerts.yml").read_text())
SELECTOR = re.compile(r"(pollconsumer_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~?)"([^"]*)"')
RARE = {"stop_reason": "watchdog|died|failed|store_unreachable|lease_lost"}
"""What must not happen in an installation that is well."""


class Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]


def is_selected(sample: Sample, name: str, matchers: str) -> bool:
    if sample.name != name:
        return False
    for label, operator, value in MATCHER.findall(matchers):
        if value in ("$queue", RARE.get(label)):
            value = ".*"
        pattern = value if operator == "=~" else re.escape(value)
        if not re.fullmatch(pattern, sample.labels.get(label, "")):
            return False
    return True


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """Of an installation that has been used."""
    site = Site()
    site.enqueue("record", name="a")
    site.enqueue("record", "--in", "1ms", name="a")
    site.enqueue("fatal")
    site.enqueue("unheard-of", "--queue", "default", name="a")
    assert site.drain().returncode == 0
    assert site.drain().returncode == 0  # of the first one there is no gap
    assert site.command("move", "--timeout", "1s").returncode == 0
    found = parsed(site.command("metrics").stdout)
    site.close()
    return [Sample(name, dict(labels)) for name, labels in found]


def assert_reads_data(expression: str, samples: list[Sample]) -> None:
    selectors = SELECTOR.findall(expression)
    assert selectors
    for name, matchers in selectors:
        assert any(is_selected(sample, name, matchers) for sample in samples), f"{name}{{{matchers}}}"


@pytest.mark.parametrize("title", PANELS)
def test_every_panel_gets_data(title: str, samples: list[Sample]) -> None:
    for expression in PANELS[title]:
        assert_reads_data(expression, samples)


@pytest.mark.parametrize(("alert", "expression"), ALERTS, ids=[alert for alert, _ in ALERTS])
def test_every_alert_reads_a_metric(alert: str, expression: str, samples: list[Sample]) -> None:
    assert alert.startswith("Pollconsumer")
    assert_reads_data(expression, samples)


def test_there_are_panels_and_alerts() -> None:
    assert (len(PANELS), len(ALERTS)) == (12, 6)
