"""The likeliest slips of people who know other queues: each is answered with what to write."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import BadData, ConfigurationError, PollConsumer
from pollconsumer.interface.api.handle import Handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.testing import Sandbox

SLIPS: dict[str, tuple[Callable[[Any, Any], object], type[Exception], str]] = {
    "an option": (
        lambda _, send: send.enqueue(to="ada", in_="5m"),
        TypeError,
        r"options go into using\(\), as in send\.using\(in_='5m'\)\.enqueue\(\.\.\.\)$",
    ),
    "an option of another queue": (lambda _, send: send.enqueue(to="a", countdown=5), TypeError, r"go into using\(\)"),
    "delay": (lambda _, send: send.delay(to="ada"), AttributeError, r"did you mean enqueue\(\.\.\.\)\?"),
    "result": (lambda _, send: send.enqueue(to="ada").result, AttributeError, r"did you mean wait\(\)\?"),
    "requeue": (lambda _, send: send.enqueue(to="ada").requeue, AttributeError, r"did you mean redrive\(\)\?"),
    "is_finished": (lambda _, send: send.enqueue(to="ada").is_finished, AttributeError, r"did you mean state\?"),
    "a time of day": (
        lambda app, _: app.every("02:30", name="daily")(lambda: None),
        ConfigurationError,
        r'or 1m30s; a time of day is a cron expression, as in "30 2 \* \* \*"$',
    ),
    "the function": (lambda app, send: app.enqueue(send, to="a"), TypeError, r"function write send\.enqueue\(\.\.\.\)"),
    "its plain function": (lambda app, send: app.enqueue(send.__wrapped__), TypeError, r"function write send\.enqueue"),
    "its arguments": (lambda app, send: app.enqueue(send.args("a")), TypeError, r"function write send\.enqueue"),
    "a number": (lambda app, _: app.enqueue(5), TypeError, r"name, as text, not int"),
    "task": (lambda app, _: app.task, AttributeError, r"did you mean handler, or every\?"),
    "enqueue_in": (lambda app, _: app.enqueue_in, AttributeError, r"did you mean enqueue\(name, .*in_="),
    "enqueue_many": (
        lambda app, _: app.enqueue_many("mail.send", []),
        AttributeError,
        r"did you mean handler\.enqueue_many",
    ),
    "an argument of the handler": (
        lambda app, _: app.enqueue("mail.send", to="ada"),
        TypeError,
        r"^unknown option: to; arguments of the handler go into the payload, a dict; known here: at, ",
    ),
    "options of it": (
        lambda app, send: app.enqueue(send.using(in_="5m")),
        TypeError,
        r"write send\.enqueue\(\.\.\.\)$",
    ),
    "run": (lambda app, _: app.run, AttributeError, r"did you mean the command pollconsumer run\?$"),
    "enqueue_in of it": (lambda _, send: send.enqueue_in, AttributeError, r"did you mean using\(in_=\.\.\.\)"),
    "using twice": (
        lambda _, send: send.using(in_="5m").using(priority=3),
        AttributeError,
        r"did you mean one using\(\.\.\.\)",
    ),
    "tz": (lambda app, _: app.every("30 2 * * *", tz="UTC"), TypeError, r"option: tz; did you mean timezone\?$"),
    "no option of every": (
        lambda app, _: app.every("5m", xyz=1),
        TypeError,
        r"^unknown option: xyz; known here: after, aliases, .*, missed, name, .*, overlap, ping, .*, timezone",
    ),
    "1 day": (
        lambda app, _: app.every("1 day", name="daily")(lambda: None),
        ConfigurationError,
        r"1 day; two fields, need five; a period is written without a space, as in 1d$",
    ),
    "args().enqueue()": (lambda _, send: send.args("ada").enqueue(), AttributeError, r"did you mean handler\.enqueue"),
}


@pytest.fixture
def send(app: PollConsumer) -> Any:
    @app.handler("mail.send", aliases=["mail"])
    def send(to: str) -> int:
        return len(to)

    return send


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.usefixtures("sandbox")
def test_a_slip_is_answered_with_what_to_write(app: PollConsumer, send: Any, slip: str) -> None:
    call, kind, hint = SLIPS[slip]
    with pytest.raises(kind, match=hint) as answered:
        call(app, send)
    assert len(str(answered.value).splitlines()) == 1


def test_a_handler_shows_its_name(send: Any) -> None:
    assert repr(send) == "<handler mail.send>"


def test_python_suggests_nothing_beside_what_a_slip_is_answered_with() -> None:
    code = "from pollconsumer import PollConsumer\nPollConsumer().enqueue_at"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert said.splitlines()[-1].endswith("did you mean enqueue(name, {...}, in_=...) or at=...?")


@pytest.mark.usefixtures("sandbox")
def test_what_resembles_no_slip_is_an_attribute_error_like_any_other(app: PollConsumer, send: Any) -> None:
    things: list[Any] = [app, send, send.using(), send.args("ada"), send.enqueue("ada")]
    for thing in things:
        with pytest.raises(AttributeError, match=r" has no anything$"):
            thing.anything  # noqa: B018
        assert not hasattr(thing, "__len__")


@pytest.mark.parametrize("name", ["mail.sned", "other"])
def test_a_handler_that_the_application_does_not_have_is_warned_of_once_and_sent(
    app: PollConsumer, sandbox: Sandbox, send: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert send
    with caplog.at_level(logging.WARNING, "pollconsumer"):
        handles = [app.enqueue(name, {"to": "ada"}) for _ in range(3)]
    assert [sandbox.message(each).handler for each in handles] == [name] * 3
    (warned,) = [each.getMessage() for each in caplog.records]
    hint = "did you mean mail.send?" if name == "mail.sned" else "if another program has it, name its queue: queue=..."
    assert warned == f"this application has no handler {name}, the message is enqueued all the same; {hint}"


@pytest.mark.usefixtures("sandbox")
def test_nobody_is_warned_of_an_alias_a_named_queue_or_an_application_without_handlers(
    app: PollConsumer, send: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert send
    app.enqueue("mail", {"to": "ada"})
    app.enqueue("other", queue="elsewhere")
    PollConsumer().enqueue("other")
    assert not caplog.records


def test_a_signal_is_true_unless_it_has_another_value_and_never_none(app: PollConsumer, sandbox: Sandbox) -> None:
    handle: Handle[Any] = app.handler("wait")(lambda: None).using(in_="1h").enqueue()
    with pytest.raises(BadData, match=r"^signal paid: null; None means that a wait timed out: send true instead$"):
        handle.signal("paid", None)
    assert handle.signal("paid")
    assert not handle.signal("paid", False)
    assert handle.signal("paid", True)
    assert sandbox.message(handle).state == "scheduled"
