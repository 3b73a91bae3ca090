"""Every argument and option of the API that takes a span, with every form of one, and with what is none. The arguments
are found by their annotations: a new one without a line here fails."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any, is_typeddict

import pytest

import pollconsumer
from pollconsumer import Backoff, Context, Item, PollConsumer, RetryIn, testing
from pollconsumer.core.spans import parse_duration
from pollconsumer.django import PollConsumerTask
from pollconsumer.interface.api.registry import BulkOptions
from pollconsumer.runtime.new_messages import SendOptions
from pollconsumer.testing import Sandbox, State
from tests.inner import calls_of, registered
from tests.interface.api_page import GIVEN, OPTIONS

FORMS: dict[str, Any] = {
    "timedelta": timedelta(minutes=2), "float": 120.0, "int": 120, "text": "2m", "text with two units": "1m60s",
}  # fmt: skip
SECONDS = 120.0
NONSENSE: dict[str, Any] = {
    "text": "soon", "list": ["2m"], "bool": True, "object": object(), "negative": timedelta(seconds=-1),
    "nan": float("nan"), "infinite": float("inf"), "no text": "",
}  # fmt: skip


def annotated() -> Iterator[tuple[str, str]]:
    """The arguments, options and results of public classes whose annotation is a span, or a number or text."""
    names: dict[str, Any] = {name: getattr(pollconsumer, name) for name in pollconsumer.__all__}
    names |= {f"testing.{name}": getattr(testing, name) for name in testing.__all__}
    names |= GIVEN | {f"{name}: options": kind for name, kind in OPTIONS.items()}
    names |= {"app.handler: options of bulk": BulkOptions, "PollConsumerTask": PollConsumerTask}
    for name, kind in names.items():
        if is_typeddict(kind) or kind is PollConsumerTask:
            yield from ((f"{name}, {each}", text_of(hint)) for each, hint in inspect.get_annotations(kind).items())
            continue
        for each, member in inspect.getmembers(kind, inspect.isfunction):
            if each.startswith("_") and each != "__init__":
                continue
            signature = inspect.signature(member)
            where = name if each == "__init__" else f"{name}.{each}"
            for parameter in signature.parameters.values():
                yield f"{where}, {parameter.name}", text_of(parameter.annotation)
            yield f"{where} -> ", text_of(signature.return_annotation)


def text_of(hint: Any) -> str:
    text = str(getattr(hint, "__forward_arg__", hint))
    return text.replace("str | float | datetime.timedelta", "Span")


FOUND = dict(annotated())
SPANS = {name for name, text in FOUND.items() if re.search(r"\b(Span|Retrying)\b", text)}
DERIVED = ("app.chain(…).enqueue()", "app.batch(…).wait", "Batch.wait")
"""What inherits its methods from a class that is tried, or is refused where it is not overridden."""


def test_no_argument_takes_a_number_or_text_and_no_timedelta() -> None:
    assert not [name for name, text in FOUND.items() if re.search(r"\bstr \| float\b|\bfloat \| str\b", text)]


def option(name: str) -> Callable[[Sandbox, PollConsumer, Any], float]:
    def seconds(_: Sandbox, app: PollConsumer, span: Any) -> float:
        beside: dict[str, Any] = {"key": "k"} if name in ("key_lifetime", "at_most") else {}
        if name == "at_most":
            beside |= {"replace": True, "in_": 10}
        options: SendOptions = {name: span, **beside}  # type: ignore[misc]
        message = app.handler("look")(lambda: None).args().using(**options).__message__()
        stored: dict[str, float] = {
            "in_": (message.delay or 0) / 1000,
            "key_lifetime": message.key_lifetime / 1000,
            "at_most": float(re.findall(r"\d+", message.key_rule)[-1]) / 1000 if message.key_rule else 0,
            "expires": message.lifetime / 1000,
            "timeout": message.timeout or 0,
        }
        return stored[name]

    return seconds


def of_handler(name: str) -> Callable[[Sandbox, PollConsumer, Any], float]:
    def seconds(_: Sandbox, app: PollConsumer, span: Any) -> float:
        if name == "bulk_wait":
            bulk = registered(app.handler("look", bulk=2, bulk_wait=span)(several)).definition.bulk
            assert bulk is not None
            return bulk.wait
        options: Any = {name: span}
        return float(getattr(registered(app.handler("look", **options)(lambda: None)).definition, name))

    return seconds


def in_handler(call: Callable[[Context, Any], object]) -> Callable[[Sandbox, PollConsumer, Any], float]:
    """Seconds for which a handler is asleep that calls this."""

    def seconds(sandbox: Sandbox, app: PollConsumer, span: Any) -> float:
        @app.handler
        def work(context: Context) -> None:
            call(context, span)

        handle = work.enqueue()
        sandbox.run(raising=True)
        due = handle.status().timestamps.next_attempt_at
        assert due is not None
        return (due - sandbox.now).total_seconds()

    return seconds


def start_batch(sandbox: Sandbox, app: PollConsumer, span: Any) -> float:
    @app.handler
    def work(context: Context) -> None:
        context.start_batch("b", expires=span)

    work.enqueue()
    sandbox.run(raising=True)
    return lasting(app)


def batch(_: Sandbox, app: PollConsumer, span: Any) -> float:
    with app.batch("b", expires=span):
        pass
    return lasting(app)


def lasting(app: PollConsumer) -> float:
    status = app.batches.get("b").status()
    assert status.expires_at is not None
    return (status.expires_at - status.created_at).total_seconds()


def every(_: Sandbox, app: PollConsumer, span: Any) -> float:
    app.every(span)(tick)
    return parse_duration(calls_of(app).recurring["tick"].every or 0)


def tick() -> None: ...


def several(messages: list[Item]) -> None: ...


def put(_: Sandbox, app: PollConsumer, span: Any) -> float:
    app.recurrences.put("r", every=span, handler="tick")
    rule = app.recurrences.get("r").recurrence
    assert rule is not None
    assert rule.every is not None
    return rule.every


def of_put(name: str) -> Callable[[Sandbox, PollConsumer, Any], float]:
    def seconds(_: Sandbox, app: PollConsumer, span: Any) -> float:
        options: Any = {name: span}
        app.recurrences.put("r", every="1d", handler="tick", **options)
        rule = app.recurrences.get("r").recurrence
        assert rule is not None
        if name == "jitter":  # how much of it the recurrence has, its name says
            assert rule.offset < 1000 * SECONDS
            return SECONDS
        return float(rule.options[name])

    return seconds


def of_every(name: str) -> Callable[[Sandbox, PollConsumer, Any], float]:
    def seconds(_: Sandbox, app: PollConsumer, span: Any) -> float:
        options: Any = {name: span}
        app.every("1d", **options)(tick)
        return parse_duration(getattr(calls_of(app).recurring["tick"], name) or 0)

    return seconds


class _Later:
    """What sends a message that is due long after."""

    def args(self) -> Any:
        return PollConsumer().handler("later")(tick).args().using(in_="30d")


LATER = _Later()


def rescheduled(sandbox: Sandbox, app: PollConsumer, call: Callable[[Any], object]) -> float:
    handle = app.handler("look")(lambda: None).using(in_="1d").enqueue()
    call(handle)
    due = handle.status().timestamps.due_at
    assert due is not None
    return (due - sandbox.now).total_seconds()


def waited(sandbox: Sandbox, app: PollConsumer, call: Callable[[Any], object], batch: bool = False) -> float:
    """Only that it is accepted: what is awaited has ended."""
    look = app.handler("look")(lambda: None)
    handle: Any = look.enqueue()
    sandbox.run()
    if batch:
        with app.batch("b"):
            pass
        handle = app.batches.get("b")
    call(handle)
    return SECONDS


def elapsed(sandbox: Sandbox, call: Callable[[], object]) -> float:
    before = sandbox.now
    call()
    return (sandbox.now - before).total_seconds()


def run_for_every(sandbox: Sandbox, app: PollConsumer, span: Any) -> float:
    begun: list[float] = []
    app.on_launch(lambda: begun.append(sandbox.now.timestamp()))
    app.every("1s")(tick)  # each launch finds something
    sandbox.run_for("10m", every=span)
    return begun[2] - begun[1]


class Policy:
    def __init__(self, span: Any) -> None:
        self.span = span

    def delay(self, _: int, __: float, /) -> Any:
        return self.span


def failing(sandbox: Sandbox, app: PollConsumer, retry: Any) -> float:
    """Seconds until the second attempt of a handler with this policy."""

    def fail() -> None:
        raise ValueError("no")

    handle = app.handler(retry=retry)(fail).enqueue()
    sandbox.run()
    next_attempt = handle.status().timestamps.next_attempt_at
    assert next_attempt is not None
    return (next_attempt - sandbox.now).total_seconds()


LISTS = (
    *("PollConsumer.retry_policy, policy", "app.handler: options, retry", "app.handler: options of bulk, retry"),
    "PollConsumerTask, retry",
)
OF_MESSAGES = ("in_", "key_lifetime", "at_most", "expires", "timeout")
CALLS: dict[str, Callable[[Sandbox, PollConsumer, Any], float]] = {
    "PollConsumer, patience": lambda _, __, span: calls_of(PollConsumer(patience=span))._pool.seconds,  # noqa: SLF001
    "PollConsumer.every, when": every,
    "PollConsumer.batch, expires": batch,
    "PollConsumer.messages, older_than": lambda _, app, span: app.messages(older_than=span)._selection.older_than or 0,  # noqa: SLF001
    "Backoff, first": lambda _, __, span: Backoff(first=span).first,
    "Backoff, most": lambda _, __, span: Backoff(most=span).most,
    "RetryIn, delay": lambda _, __, span: RetryIn(span).seconds,
    "Context.sleep, duration": in_handler(lambda context, span: context.sleep(span)),
    "Context.wait_for, timeout": in_handler(lambda context, span: context.wait_for("s", timeout=span)),
    "Context.call, timeout": in_handler(lambda context, span: context.call(LATER.args(), timeout=span)),
    "Context.call_many, timeout": in_handler(lambda context, span: context.call_many([LATER.args()], timeout=span)),
    "Context.start_batch, expires": start_batch,
    "Handle.reschedule, in_": lambda box, app, span: rescheduled(box, app, lambda each: each.reschedule(in_=span)),
    "Handle.reschedule_async, in_": lambda box, app, span: rescheduled(
        box, app, lambda each: asyncio.run(each.reschedule_async(in_=span))
    ),
    "Handle.wait, timeout": lambda box, app, span: waited(box, app, lambda each: each.wait(span)),
    "Handle.wait_async, timeout": lambda box, app, span: waited(
        box, app, lambda each: asyncio.run(each.wait_async(span))
    ),
    "app.batches.get(…).wait, timeout": lambda box, app, span: waited(
        box, app, lambda each: each.wait(span), batch=True
    ),
    "app.batches.get(…).wait_async, timeout": lambda box, app, span: waited(
        box, app, lambda each: asyncio.run(each.wait_async(span)), batch=True
    ),
    "app.recurrences.put: options, every": put,
    **{f"app.recurrences.put: options, {name}": of_put(name) for name in ("jitter", "expires", "timeout")},
    **{f"PollConsumer.every, {name}": of_every(name) for name in ("jitter", "expires")},
    "testing.Sandbox.advance, span": lambda box, _, span: elapsed(box, lambda: box.advance(span)),
    "testing.Sandbox.run_for, span": lambda box, _, span: elapsed(box, lambda: box.run_for(span)),
    "testing.Sandbox.run_for, every": run_for_every,
    **{f"app.enqueue: options, {name}": option(name) for name in OF_MESSAGES},
    **{f"app.handler: options, {name}": of_handler(name) for name in ("timeout", "result_ttl")},
    **{f"app.handler: options of bulk, {name}": of_handler(name) for name in ("timeout", "result_ttl", "bulk_wait")},
    **dict.fromkeys(LISTS, lambda box, app, span: failing(box, app, [span])),
    **{f"PollConsumerTask, {name}": of_handler(name) for name in ("timeout", "result_ttl")},  # given to the handler
}
ARGUMENTS = {name for name in SPANS if not name.endswith("-> ") and not name.startswith(DERIVED)}


def test_each_argument_that_takes_a_span_is_tried() -> None:
    assert CALLS.keys() == ARGUMENTS


@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CALLS)
def test_an_argument_takes_a_span_in_each_form(sandbox: Sandbox, app: PollConsumer, name: str, form: str) -> None:
    assert CALLS[name](sandbox, app, FORMS[form]) == pytest.approx(SECONDS)


@pytest.mark.matrix
@pytest.mark.parametrize("nonsense", NONSENSE)
@pytest.mark.parametrize("name", CALLS)
def test_an_argument_refuses_what_is_no_span(sandbox: Sandbox, app: PollConsumer, name: str, nonsense: str) -> None:
    with pytest.raises((TypeError, ValueError, pollconsumer.ConfigurationError)) as refused:
        CALLS[name](sandbox, app, NONSENSE[nonsense])
    text, argument = str(refused.value), name.rpartition(", ")[2]
    assert len(text.splitlines()) == 1
    assert re.search(rf"(^|\b)({argument}|{SAID.get(argument, argument)})(?!\w)", text)


SAID = {
    "when": "every",
    "delay": "RetryIn",
    "policy": r"retry\[0\]",
    "retry": r"retry\[0\]",
    "duration": "context.sleep",
    "timeout": "context.wait_for",
}  # fmt: skip """How errors call an argument that they do not call by its name."""


@pytest.mark.parametrize("form", FORMS)
def test_a_policy_answers_with_a_span_in_each_form(sandbox: Sandbox, app: PollConsumer, form: str) -> None:
    assert failing(sandbox, app, Policy(FORMS[form])) == pytest.approx(SECONDS)


def test_delays_in_a_list_are_those_before_each_attempt_and_the_last_is_repeated(
    sandbox: Sandbox, app: PollConsumer
) -> None:
    begun: list[float] = []

    @app.handler(retry=["10s", timedelta(minutes=1)])
    def fail() -> None:
        begun.append(sandbox.now.timestamp())
        raise ValueError("no")

    handle = fail.enqueue()
    while handle.state is not State.DEAD:
        sandbox.run()
        sandbox.advance(1)
    assert [b - a for a, b in pairwise(begun)] == [10, 60, 60, 60]


@pytest.mark.parametrize("retry", [[], "10s", ["soon"], [True], {"10s": 1}, ["10s", None]])
def test_what_is_no_list_of_delays_is_refused(app: PollConsumer, retry: Any) -> None:
    with pytest.raises(pollconsumer.ConfigurationError, match=r"^retry"):
        app.handler(retry=retry)
