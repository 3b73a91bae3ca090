"""Metrics as another program reads them: printed, or in a file."""

from __future__ import annotations

import stat
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.notation.text import printable
from pollconsumer.store.reading.ledger import LAST_BUCKET, Spans
from pollconsumer.watching.metrics import Metric, Sample, lines_of, samples_of

if TYPE_CHECKING:
    from tests.site import Site

parser = pytest.importorskip("prometheus_client.parser")


def parsed(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = parser.text_string_to_metric_families(text)
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return f"pollconsumer_{name}", frozenset(labels.items())


def test_totals_outlive_launches_and_gauges_show_what_there_is_now(site: Site) -> None:
    for launch in range(2):
        site.enqueue("record", name="a")
        site.enqueue("record", "--in", "1ms", name="a")
        site.enqueue("fatal")
        assert site.drain().returncode == 0, launch
    site.enqueue("record", "--queue", "other", name="a")
    metrics = parsed(site.command("metrics").stdout)
    expected = {
        key("messages_settled_total", queue="default", handler="record", outcome="completed"): 4,
        key("messages_settled_total", queue="default", handler="fatal", outcome="dead"): 2,
        key("launches_total", role="consumer", stop_reason="empty"): 2,
        key("handling_duration_seconds_count", handler="record"): 4,
        key("waiting_seconds_count", queue="default"): 6,
        key("waiting_seconds_bucket", queue="default", le="+Inf"): 6,
        key("lateness_seconds_count", queue="default"): 2,
        key("messages", queue="default", state="dead"): 2,
        key("messages", queue="other", state="ready"): 1,
        key("queue_paused", queue="other"): 0,
    }
    assert {name: metrics.get(name) for name in expected} == expected
    assert metrics[key("scale_out", queue="default")] == 0
    assert metrics[key("scale_out", queue="other")] >= 1
    assert metrics[key("last_launch_timestamp_seconds", role="consumer", queue="default")] > 1.7e9


def test_a_lease_is_held_while_a_launch_is_at_work_and_then_no_more(site: Site) -> None:
    def held() -> dict[str, float]:
        samples = parsed(site.command("metrics").stdout).items()
        return {dict(labels)["role"]: value for (name, labels), value in samples if name == "pollconsumer_lease_held"}

    assert site.command("move", "--timeout", "1s").returncode == 0
    launch = site.start("run", "--timeout", "1m")
    site.await_holder(launch.pid)
    assert held() == {"consumer": 1, "mover": 0}
    launch.terminate()
    launch.communicate()
    assert held() == {"consumer": 0, "mover": 0}


def test_a_queue_whose_launches_come_rarely_is_seen_behind_many_of_another(site: Site) -> None:
    site.constants = {"LAUNCHES_READ": 1}
    site.enqueue("record", "--queue", "reports", "--in", "1h", name="a")
    for queue in "reports", "default", "default":
        assert site.drain("--queue", queue).returncode == 0
    metrics = parsed(site.command("metrics").stdout)
    assert key("last_launch_timestamp_seconds", role="consumer", queue="reports") in metrics
    assert site.command("doctor").returncode == 0  # without a finding that no launch serves it


def test_a_store_without_launches_has_metrics_too(site: Site) -> None:
    assert parsed(site.command("metrics").stdout) == {}


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_label_is_read_back_as_people_are_shown_it(queue: str, handler: str) -> None:
    metric = Metric("x", "gauge", "Help.", [Sample({"queue": queue, "handler": handler}, 1.5)])
    text = "\n".join(lines_of([metric])) + "\n"
    assert parsed(text) == {key("x", queue=printable(queue), handler=printable(handler)): 1.5}


def test_buckets_are_cumulative_up_to_all() -> None:
    samples = [*samples_of(Spans(9.5, Counter({0: 2, 3: 5, LAST_BUCKET: 1})), {})]
    found = {each.labels.get("le", each.suffix): each.value for each in samples}
    assert (found["0.001"], found["0.002"], found["0.004"], found["0.008"], found["8388.61"]) == (2, 2, 2, 7, 7)
    assert (found["+Inf"], found["_count"], found["_sum"]) == (8, 8, 9.5)


def test_a_text_file_is_replaced_as_a_whole_and_readable_to_its_collector(site: Site) -> None:
    site.enqueue("record", name="a")
    path = site.directory / "queue.prom"
    path.write_text("old")
    done = site.command("metrics", "--textfile", str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert parsed(path.read_text())[key("messages", queue="default", state="ready")] == 1
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444
    assert [each.name for each in site.directory.glob(".queue*")] == []


def test_a_text_file_that_cannot_be_written_is_an_error_of_a_line(site: Site) -> None:
    done = site.command("metrics", "--textfile", "nowhere/queue.prom")
    assert done.returncode == 73
    assert done.stderr == (
        "pollconsumer: error: text file: nowhere/queue.prom; "
        "No such file or directory: name a file in a directory that exists\n"
    )
