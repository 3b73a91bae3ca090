"""Which handlers are said to keep other messages waiting."""

from __future__ import annotations

import pytest

from pollconsumer.interface.assembly.handlers import long_handlers
from pollconsumer.interface.cli.installation.check import own_queues
from pollconsumer.runtime.handling.handler import Handler


def handler(name: str, queue: str = "default", timeout: float | None = None) -> Handler:
    return Handler(name, lambda _payload, _context: None, queue=queue, timeout=timeout)


def said(*handlers: Handler, queues: tuple[str, ...] = ("default", "mail"), **measured: float) -> list[str]:
    return [str(each) for each in long_handlers({each.name: each for each in handlers}, queues, 60.0, measured)]


MAIL = handler("send", "mail")


def test_nothing_waits_beside_a_long_handler_where_there_are_other_slots() -> None:
    handlers = {each.name: each for each in (MAIL, handler("render", timeout=300.0))}
    assert [*long_handlers(handlers, ("default", "mail"), 60.0, {}, slots=1)] != []
    assert [*long_handlers(handlers, ("default", "mail"), 60.0, {}, slots=4)] == []


def test_a_timeout_longer_than_the_window_keeps_all_queues_of_the_launch_waiting() -> None:
    beside = handler("brief")
    assert said(handler("render", timeout=300.0), beside, MAIL) == [
        "render may take 5m: other messages of default, mail wait meanwhile; a queue and a crontab line of its own "
        "would let them pass: queue=\"render\", then 'pollconsumer init cron --install --queue render'"
    ]
    assert said(handler("render", timeout=60.0), beside, MAIL) == []


def test_a_queue_of_its_own_needs_only_a_line() -> None:
    assert said(handler("render", "slow", 300.0), MAIL, queues=("mail", "slow")) == [
        "render may take 5m: other messages of mail wait meanwhile; a crontab line of its own would let them pass: "
        "'pollconsumer init cron --install --queue slow'"
    ]


@pytest.mark.parametrize(("took", "found"), [(53.0, 0), (54.0, 1), (180.0, 1)])
def test_a_measured_duration_near_the_window_counts_too(took: float, found: int) -> None:
    assert len(said(handler("render"), MAIL, render=took)) == found


def test_nothing_is_said_where_no_other_message_waits() -> None:
    assert said(handler("render", "slow", 300.0), queues=("slow",)) == []
    assert said(handler("render", "slow", 300.0), MAIL, queues=("mail",)) == []


@pytest.mark.parametrize(
    ("newest_first", "own"),
    [
        ([], {"default", "slow"}),
        ([["default"]], {"default", "slow"}),  # the queue of a handler that has just been added
        ([["default", "slow"], ["default"]], {"default", "slow"}),
        ([["slow"]], {"default"}),
        ([["slow"], ["default"]], set()),
        ([["default"], ["default", "slow"]], {"slow"}),
    ],
)
def test_queues_that_one_launch_serves(newest_first: list[list[str]], own: set[str]) -> None:
    assert own_queues(["default", "slow"], [{"queues": each} for each in newest_first]) == own
