"""docs/troubleshooting.md explains the program's lines: each error by its exit code, each event whose line does not say
what to do, each stop reason."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core import errors, events
from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.window import StopReason
from pollconsumer.interface.logs.event_log import listener
from tests.exits import DOCUMENTED

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text("utf-8")
HEADINGS = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
SAMPLES = {"str": "…", "int": 7, "float": 7.0, "tuple[str, ...]": ("…",), "str | None": None}
"""A value of each type of field."""


def kinds(module: Any, base: type) -> list[Any]:
    return [kind for _, kind in inspect.getmembers(module, inspect.isclass) if issubclass(kind, base)]


EVENTS = [kind for kind in kinds(events, events.Event) if kind is not events.Event]


def samples(kind: type) -> Iterator[events.Event]:
    """One event of the kind, and one more where a field may be missing."""
    fields = dict(kind.__annotations__)
    yield kind(**{name: SAMPLES[of.removesuffix(" | None") if "float" in of else of] for name, of in fields.items()})
    if "float | None" in fields.values():
        yield kind(**{name: SAMPLES.get(of) for name, of in fields.items()})


@pytest.mark.parametrize("kind", kinds(errors, PollConsumerError), ids=lambda kind: kind.__name__)
def test_each_error_has_its_exit_code_in_a_heading(kind: type[PollConsumerError]) -> None:
    [heading] = [each for each in HEADINGS if f"`{kind.__name__}`" in each]
    assert heading.startswith(f"{kind.exit_code}: ")


def test_each_exit_code_but_success_has_a_heading() -> None:
    headed = {int(code) for heading in HEADINGS for code in re.findall(r"\b\d+\b", heading.partition(":")[0])}
    assert headed == (DOCUMENTED | {1}) - {0}


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_the_line_of_each_event_says_what_to_do_or_has_a_heading(kind: type, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pollconsumer")
    for event in samples(kind):
        caplog.clear()
        listener()(event)
        [line] = caplog.messages
        shown = re.sub(r"\b\d[\d:]*m?s?\b", "…", line)
        explained = [key for heading in HEADINGS for key in re.findall(r"`([^`]+)`", heading) if shown.startswith(key)]
        assert "; " in line or explained, shown


def test_each_stop_reason_is_explained() -> None:
    assert {
        reason
        for reason in StopReason
        if not {f"`{reason}`", f"`{reason.replace('_', ' ')}`"} & {*re.findall("`[^`]+`", PAGE)}
    } == set()
