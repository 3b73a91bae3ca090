"""Each event has a line, also one that the log does not know yet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core import events, json_values
from pollconsumer.core.events import Event
from pollconsumer.interface.assembly.log_outputs import journal_line, json_line
from pollconsumer.interface.logs import logs
from pollconsumer.interface.logs.event_log import NOTES, WARNINGS, listener
from tests.core.test_text import is_harmless
from tests.interface.odd_values import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS = [each for each in vars(events).values() if isinstance(each, type) and issubclass(each, Event)]
SAID_OTHERWISE = {Event, events.AttemptFailed, events.LaunchBegan, events.LaunchEnded, events.QueueUnknown}


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


def test_the_line_of_an_unknown_handler_asks_for_the_one_that_resembles_it(caplog: pytest.LogCaptureFixture) -> None:
    for handler in ("quoet", "other"):
        listener(lambda: {"quote", "mail.send"})(events.MessageParked("a", handler, 60.0))
    said = [line.rpartition("handler that has another name now")[2] for line in caplog.messages]
    assert said == ["; did you mean quote?", ""]


def test_of_what_may_happen_to_every_message_one_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    listen = listener()
    for handler in ("a", "a", "b"):
        listen(events.MessageNotBegun("1", handler, "no process", 60.0))
    assert [message.partition(":")[0][-1] for message in caplog.messages] == ["a", "b"]


NUMBERS = [0, -1, 10**20, 10**400]
SPANS = [0.0, -1.0, 1e-9, 1e300, float("inf"), float("-inf"), float("nan")]
FORMATS: dict[str, logs.Line | None] = {"text": None, "json": json_line, "journal": journal_line}


def odd_values(said: object) -> list[Any]:
    """Odd values of a field's type, which is an annotation in text."""
    kind = str(said)
    if "tuple" in kind:
        return [(), *((word,) for word in WORDS.values()), tuple(WORDS.values())]
    found: list[Any] = [*SPANS] if "float" in kind else [*NUMBERS] if "int" in kind else [*WORDS.values()]
    return [*found, None] if "None" in kind else found


@pytest.fixture
def _lines_of_ours() -> Iterator[None]:
    yield
    logs.direct(None, None)


@pytest.mark.matrix
@pytest.mark.usefixtures("_lines_of_ours")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", [each for each in EVENTS if each is not Event])
def test_an_event_of_odd_values_has_one_line(kind: type[Event], form: str, capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(1)
    logs.direct(FORMATS[form], None, has_traceback=form == "json")
    for field, said in kind.__annotations__.items():
        for value in odd_values(said):
            listener()(kind(**values(kind) | {field: value}))
            written = capfd.readouterr().err
            line, *following = written.removesuffix("\n").split("\n")
            traced = kind is events.AttemptFailed and form != "json" and field in {"delay", "traced"}
            assert not following or traced, (field, value)
            assert all(each.startswith("  ") or not each for each in following), (field, value)
            assert all(map(is_harmless, [line, *following])), (field, value)
            if form == "json":
                assert json_values.parse(written)["message"], (field, value)


def test_every_type_of_a_field_has_odd_values() -> None:
    kinds = {str(said) for kind in EVENTS for said in kind.__annotations__.values()}
    assert {re.sub(r"[^a-z]", "", said) for said in kinds} == {
        "str",
        "float",
        "int",
        "tuplestr",
        "strone",
        "floatone",
    }
