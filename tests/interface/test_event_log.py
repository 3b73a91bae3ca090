"""Each event has a line, also one that the log does not know yet."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pollconsumer.core.news import events
from pollconsumer.core.news.events import Event
from pollconsumer.interface.logs import logs
from pollconsumer.interface.logs.event_log import NOTES, WARNINGS, listener

EVENTS = [each for each in vars(events).values() if isinstance(each, type) and issubclass(each, Event)]
SAID_OTHERWISE = {Event, events.LaunchBegan, events.LaunchEnded, events.QueueUnknown}


class Newer(Event):
    """As a later version may have."""

    queue: str
    seconds: float


def values(kind: type[Event]) -> dict[str, Any]:
    return {name: 1.5 if "float" in str(said) else name for name, said in kind.__annotations__.items()}


@pytest.mark.parametrize("kind", [each for each in EVENTS if each is not Event])
def test_each_event_has_a_line(kind: type[Event], caplog: pytest.LogCaptureFixture) -> None:
    assert kind in {*NOTES, *WARNINGS, *SAID_OTHERWISE}
    with caplog.at_level("INFO", logs.log.name):
        listener()(kind(**values(kind)))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("kind", [kind for kind in (*NOTES, *WARNINGS) if "messages" in kind.__annotations__])
def test_a_line_of_one_message_is_not_of_several(kind: type[Event], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logs.log.name):
        listener()(kind(**values(kind) | {"messages": 1}))
    [line] = caplog.messages
    assert not re.search(r"\b1 \w+s\b", line)


def test_an_event_without_a_text_has_a_line_of_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    listener()(Newer("mail", 1.5))
    assert caplog.messages == ["Newer, queue mail, seconds 1.5s"]


def test_of_what_may_happen_to_every_message_one_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    listen = listener()
    for handler in ("a", "a", "b"):
        listen(events.MessageNotBegun("1", handler, "no process", 60.0))
    assert [message.split()[0] for message in caplog.messages] == ["a", "b"]
