"""Options that a message brings with it to its handler: headers, and what takes the place of the handler's own."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pollconsumer import Backoff, Context, PollConsumer
from pollconsumer.core.errors import BadData, ConfigurationError
from tests.inner import calls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.testing import Sandbox
    from tests.site import Site

HEADERS = {"trace-id": "4bf92f", "Lang": "fr"}


def headers_seen(app: PollConsumer) -> list[dict[str, str]]:
    seen: list[dict[str, str]] = []

    @app.handler
    def look(context: Context) -> None:
        seen.append(dict(context.headers))
        if context.attempt == 1 and context.generation == 0:
            raise ValueError

    return seen


def test_headers_reach_the_handler_at_each_attempt_and_after_a_redrive(app: PollConsumer, sandbox: Sandbox) -> None:
    seen = headers_seen(app)
    retried = app.enqueue("look", headers=HEADERS)
    sandbox.run_for("1h")
    dead = app.enqueue("look", headers={"n": "2"}, max_attempts=1)
    sandbox.run()
    assert seen == [HEADERS, HEADERS, {"n": "2"}]
    dead.redrive()
    sandbox.run()
    assert seen[3:] == [{"n": "2"}]
    assert [each.status().headers for each in (retried, dead)] == [HEADERS, {"n": "2"}]


def test_without_headers_a_context_has_none_and_they_cannot_be_set(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler
    def look(context: Context) -> None:
        assert dict(context.headers) == {}
        with pytest.raises(TypeError):
            context.headers["a"] = "b"  # type: ignore[index]

    handle = app.enqueue("look", headers={})
    sandbox.run()
    assert handle.state == "completed"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_hooks_see_the_headers(app: PollConsumer, sandbox: Sandbox, *, asynchronous: bool) -> None:
    seen: list[tuple[str, str]] = []
    app.before(lambda context: seen.append(("before", context.headers["n"])))
    app.after(lambda context, _: seen.append(("after", context.headers["n"])))
    app.on_failure(lambda context, *_: seen.append(("failure", context.headers["n"])))
    app.on_dead(lambda context, _: seen.append(("dead", context.headers["n"])))

    def fail(times: int, context: Context) -> None:
        if context.attempt <= times:
            raise ValueError

    async def fail_async(times: int, context: Context) -> None:
        fail(times, context)

    app.handler("fail", max_attempts=2)(fail_async if asynchronous else fail)
    for times in (0, 1, 2):
        app.enqueue("fail", {"times": times}, headers={"n": str(times)})
        sandbox.run_for("1m")
    assert seen == [
        ("before", "0"), ("after", "0"),
        ("before", "1"), ("failure", "1"), ("before", "1"), ("after", "1"),
        ("before", "2"), ("failure", "2"), ("before", "2"), ("dead", "2"),
    ]  # fmt: skip


def test_follow_ups_have_headers_of_their_own_and_copies_on_request(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler
    def first(context: Context) -> None:
        context.enqueue("second", {"n": 1})
        context.enqueue("second", {"n": 2}, copy_headers=True)
        context.enqueue("second", {"n": 3}, copy_headers=True, headers={"Lang": "en", "more": "x"})

    seen = {}

    @app.handler
    def second(n: int, context: Context) -> None:
        seen[n] = dict(context.headers)

    app.enqueue("first", headers=HEADERS)
    sandbox.run()
    assert seen == {1: {}, 2: HEADERS, 3: {"trace-id": "4bf92f", "Lang": "en", "more": "x"}}


def test_every_way_of_enqueueing_takes_them(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[str] = []

    @app.handler
    def look(context: Context) -> None:
        seen.append(context.headers["n"])

    look.using(headers={"n": "1"}).enqueue()
    look.using(headers={"n": "2"}).enqueue_many([{}, {}])
    look.using(headers={"n": "3"}, id="mine").enqueue()
    assert look.using(headers={"n": "4"}, id="mine").enqueue().duplicate  # they are no part of what an id stands for
    asyncio.run(app.enqueue_async("look", headers={"n": "5"}))
    asyncio.run(look.using(headers={"n": "6"}).enqueue_async())
    sandbox.run()
    assert seen == ["1", "2", "2", "3", "5", "6"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"headers": {"a b": "x"}}, "header name: 'a b'; 1 to 100 letters"),
        ({"headers": {"": "x"}}, "header name: ''"),
        ({"headers": {1: "x"}}, "header name: 1"),
        ({"headers": {"a": 1}}, "header a: 1; printable text"),
        ({"headers": {"a": "x\ny"}}, "header a"),
        ({"headers": ["a"]}, "headers: .'a'.; a mapping"),
        ({"headers": {"a": "x" * 5000}}, "headers: 5008 bytes; at most 4096"),
        ({"timeout": 0}, "timeout: 0.0; must be > 0"),
        ({"timeout": "soon"}, "timeout: soon"),
        ({"max_attempts": 0}, "max_attempts: 0; a whole number from 1"),
        ({"max_attempts": True}, "max_attempts: True"),
        ({"retry": ""}, "retry: ''; the name of a policy"),
        ({"retry": Backoff()}, "retry: <.*; the name of a policy"),
    ],
)
@pytest.mark.usefixtures("sandbox")
def test_an_invalid_option_is_refused_before_anything_is_sent(
    app: PollConsumer, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadData, match=problem):
        app.enqueue("look", **options)
    assert list(app.messages()) == []


def test_the_attempts_of_a_message_take_the_place_of_its_handlers(app: PollConsumer, sandbox: Sandbox) -> None:
    attempts: dict[str, int] = {}

    @app.handler(max_attempts=3)
    def fail(name: str) -> None:
        attempts[name] = attempts.get(name, 0) + 1
        raise ValueError

    @app.handler(delivery="at_most_once")
    def once() -> None:
        attempts["once"] = attempts.get("once", 0) + 1
        raise ValueError

    app.enqueue("fail", {"name": "its handler's"})
    app.enqueue("fail", {"name": "one"}, max_attempts=1)
    app.enqueue("fail", {"name": "seven"}, max_attempts=7)
    app.enqueue("once", max_attempts=7)
    sandbox.run_for("2h")
    assert attempts == {"its handler's": 3, "one": 1, "seven": 7, "once": 1}


def test_a_message_may_name_a_retry_policy(app: PollConsumer, sandbox: Sandbox) -> None:
    app.retry_policy("gentle", Backoff(first="1h", factor=1, most="1h", jitter=0))
    delays: list[float] = []
    app.on_failure(lambda _, __, delay: delays.append(delay))

    @app.handler(retry=Backoff(first="1s", factor=1, most="1s", jitter=0), max_attempts=2)
    def fail() -> None:
        raise ValueError

    app.enqueue("fail")
    fail.using(retry="gentle").enqueue()
    sandbox.run()
    assert delays == [1, 3600]


def test_an_unknown_policy_is_reported_and_the_default_delay_applies(
    app: PollConsumer, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    delays: list[float] = []
    app.on_failure(lambda _, __, delay: delays.append(delay))

    @app.handler(retry=Backoff(first="1h", most="1h"), max_attempts=2)
    def fail() -> None:
        raise ValueError

    app.retry_policy("gentel", Backoff())
    fail.using(retry="gentel").enqueue()
    calls_of(app).retry_policies.clear()  # those of a launch that has not registered it
    sandbox.run()
    assert len(delays) == 1
    assert delays[0] <= 1
    assert "no retry policy named gentel here" in caplog.text


def test_a_policy_is_registered_once_under_a_name(app: PollConsumer) -> None:
    app.retry_policy("gentle", Backoff())
    with pytest.raises(ConfigurationError, match="retry policy registered twice: gentle"):
        app.retry_policy("gentle", Backoff())
    with pytest.raises(ConfigurationError, match="retry: 7"):
        app.retry_policy("other", 7)  # type: ignore[arg-type]
    with pytest.raises(BadData, match="retry: ''"):
        app.retry_policy("", Backoff())


@pytest.mark.parametrize("retry", [5, []])
def test_a_retry_that_is_no_text_is_refused_of_a_handler_by_its_name(app: PollConsumer, retry: Any) -> None:
    app.handler("known")(lambda: None)
    with pytest.raises(BadData, match="the name of a policy"):
        app.enqueue("known", retry=retry)


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("own", [None, "1h"])
def test_a_timeout_of_a_message_takes_the_place_of_its_handlers(
    app: PollConsumer, sandbox: Sandbox, *, hooked: bool, asynchronous: bool, own: str | None
) -> None:
    left: list[float] = []
    if hooked:
        app.before(lambda _: None)

    def wait(context: Context) -> None:
        left.append(context.time_left())
        time.sleep(30)

    async def wait_async(context: Context) -> None:
        left.append(context.time_left())
        await asyncio.sleep(30)

    app.handler("wait", max_attempts=1, timeout=own)(wait_async if asynchronous else wait)
    handle = app.enqueue("wait", timeout="50ms")
    sandbox.run()
    assert (handle.state, handle.status().last_error) == (
        "dead",
        "HandlerTimeout: ran longer than its limit of 50ms, from timeout= or consumer.handler_limit",
    )
    assert left[0] <= 0.05


@pytest.mark.parametrize("hooked", [False, True])
def test_a_longer_timeout_of_a_message_holds_too(app: PollConsumer, sandbox: Sandbox, *, hooked: bool) -> None:
    if hooked:
        app.before(lambda _: None)

    @app.handler(timeout="10ms", max_attempts=1)
    def wait() -> None:
        time.sleep(0.02)

    short, long = wait.enqueue(), wait.using(timeout="1h").enqueue()
    sandbox.run()
    assert (short.state, long.state) == ("dead", "completed")


HANDLERS = """
import time
from pollconsumer import Context, PollConsumer
from handlers import note

app = PollConsumer()

@app.handler(isolation="process", max_attempts=1, timeout="30s")
def apart(seconds: float, context: Context) -> None:
    note(f"{context.headers['n']} {context.time_left() < 1}")
    context.enqueue("record", {"name": "next"}, copy_headers=True)
    time.sleep(seconds)
"""


COMMANDS = """
handlers = ["handlers"]
[commands.show]
command = ["/bin/sh", "-c", "env | grep HEADER_ | sort"]
[commands.wait]
command = ["/bin/sleep", "60"]
kill_after = "1s"
max_attempts = 3
"""


def test_a_handler_in_a_process_of_its_own_has_headers_and_the_messages_timeout(site: Site) -> None:
    (site.directory / "more.py").write_text(HANDLERS)
    (site.directory / "config.toml").write_text('handlers = ["handlers", "more"]\n')
    quick = site.command("enqueue", "apart", '{"seconds": 0}', "--header", "n=1", "--timeout", "20s").stdout.strip()
    slow = site.command("enqueue", "apart", '{"seconds": 60}', "--header", "n=2", "--timeout", "900ms").stdout.strip()
    site.drain()
    assert site.notes() == ["1 False", "2 True", "next"]
    assert (site.state(quick), site.state(slow)) == ("completed", "dead")
    assert (
        site.json("status", slow)["last_error"]
        == "HandlerTimeout: ran longer than its limit of 900ms, from timeout= or consumer.handler_limit"
    )


def test_a_program_finds_the_headers_in_its_environment_and_has_the_messages_timeout(site: Site) -> None:
    (site.directory / "config.toml").write_text(COMMANDS)
    headers = ["--header", "trace-id=4bf92f", "--header", "Lang=fr, =é"]
    shown = site.command("enqueue", "show", *headers).stdout.strip()
    waits = site.command("enqueue", "wait", "--timeout", "100ms", "--max-attempts", "1").stdout.strip()
    site.drain()
    output = "POLLCONSUMER_HEADER_LANG=fr, =é\nPOLLCONSUMER_HEADER_TRACE_ID=4bf92f\n"
    assert site.json("status", shown)["result"]["output"] == output
    died = site.json("status", waits)
    assert (died["state"], died["attempts"]) == ("dead", 1)
    assert "ran longer than its limit of 100ms" in died["last_error"]


def test_the_shell_sends_and_shows_them(site: Site) -> None:
    sent = site.command("enqueue", "record", '{"name": "a"}', "--header", "trace-id=4bf92f").stdout.strip()
    assert site.json("status", sent)["headers"] == {"trace-id": "4bf92f"}
    assert ["header", "trace-id:", "4bf92f"] in [
        line.split() for line in site.command("status", sent).stdout.splitlines()
    ]
    options = {"headers": {"n": "1"}, "timeout": "5s", "max_attempts": 2, "retry": "x"}
    line = {"handler": "record", "payload": {"name": "b"}, "queue": "default", **options}
    (site.directory / "lines").write_text(f"{json.dumps(line)}\n")
    (from_file,) = site.command("enqueue", "--ndjson", "lines").stdout.split()
    assert site.json("status", from_file)["headers"] == {"n": "1"}
    site.drain()
    assert site.notes() == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--header", "no equals"], 2, "no equals; write NAME=VALUE"),
        (["--header", "a=1", "--header", "a=2"], 2, "a is given twice"),
        (["--header", "a b=1"], 65, "header name: 'a b'; 1 to 100 letters"),
        (["--header", "a=\x07"], 65, "header a: "),
        (["--timeout", "0"], 2, "--timeout"),
        (["--max-attempts", "0"], 2, "--max-attempts"),
        (["--retry", ""], 65, "retry: ''; the name of a policy"),
    ],
)
def test_what_is_wrong_with_an_option_is_said_in_a_line(
    site: Site, arguments: list[str], code: int, problem: str
) -> None:
    refused = site.command("enqueue", "record", '{"name": "a"}', *arguments)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (code, "", 1)
    assert problem in refused.stderr


@pytest.mark.parametrize("names", [("A-B", "a.b"), ("a_b", "x", "A_B"), ("trace-id", "TRACE~ID")])
def test_headers_that_a_program_would_find_in_one_variable_are_refused(
    app: PollConsumer, sandbox: Sandbox, names: tuple[str, ...]
) -> None:
    headers = dict.fromkeys(names, "1")
    send = app.handler("look")(lambda: None)
    for call in (
        lambda: app.enqueue("look", headers=headers),
        lambda: send.using(headers=headers),
        lambda: app.recurrences.put("x", handler="look", every="1h", headers=headers),
    ):
        with pytest.raises(BadData, match=f"header names: {names[0]}, {names[-1]}; .* in one variable: rename one"):
            call()
    app.before_enqueue(lambda draft: draft.headers.update(headers))
    with pytest.raises(BadData, match="in one variable"):
        app.enqueue("look")
    assert sandbox.messages() == []


def test_of_an_unknown_option_the_known_ones_are_named(app: PollConsumer) -> None:
    options: dict[str, Any] = {"prority": 3, "lately": "5m"}
    with pytest.raises(TypeError, match=r"unknown option: lately, prority; did you mean priority"):
        app.enqueue("look", **options)
    with pytest.raises(TypeError, match=r"unknown option: lately, prority; did you mean priority"):
        app.recurrences.put("sweep", handler="look", every="1m", **options)


OPTIONS_OF_ONE = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from([None, "a", "b.7", "", 5]),
        "key": st.sampled_from([None, "k", "é" * 120, "a\0b", 7]),
        "key_lifetime": st.sampled_from([None, "5m", 60]),
        "key_scope": st.sampled_from([None, "queue", "handler", "other"]),
        "headers": st.sampled_from([None, {}, {"n": "1"}, {"a b": "x"}, {"n": "1", "N": "2"}]),
        "priority": st.sampled_from([None, 0, 3, -2, True, 1, 1.0]),
        "in_": st.sampled_from([None, 0, "5m", 5, 5.0, [1]]),
        "at": st.sampled_from([datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 1)]),
        "expires": st.sampled_from([None, "2h"]),
        "timeout": st.sampled_from([None, 2, "-"]),
        "max_attempts": st.sampled_from([None, 2, 0]),
        "queue": st.sampled_from([None, "other"]),
        "concurrency_key": st.sampled_from([None, "c", ""]),
    },
)


@example(of_all={}, of_each=[{"key": "a\0b", "timeout": "-"}])
@example(of_all={}, of_each=[{"id": "", "key": "a\0b"}])
@example(of_all={}, of_each=[{"queue": None}])
@given(of_all=OPTIONS_OF_ONE, of_each=st.lists(OPTIONS_OF_ONE, min_size=1, max_size=4))
def test_a_message_among_others_has_what_its_options_alone_make_of_it(
    of_all: dict[str, Any], of_each: list[dict[str, Any]]
) -> None:
    app = PollConsumer()
    sent: list[NewMessage] = []

    def keep(messages: Sequence[NewMessage], **_: bool) -> list[Any]:
        sent.extend(messages)
        return []

    calls_of(app).enqueue_messages = keep  # type: ignore[method-assign]

    @app.handler("look", queue="slow")
    def look(n: int) -> None: ...

    def made(make: Callable[[], list[NewMessage]]) -> object:
        """Messages but for ids that were generated, or what refuses them."""
        try:
            return [message if message.digest else message._replace(id="") for message in make()]
        except (TypeError, ValueError) as error:
            return type(error), str(error)

    def together() -> list[NewMessage]:
        look.using(**of_all).enqueue_many([look.args(n).using(**options) for n, options in enumerate(of_each)])
        return sent

    def alone() -> list[NewMessage]:
        look.using(**of_all)
        return [look.args(n).using(**{**of_all, **options}).__message__() for n, options in enumerate(of_each)]

    assert made(together) == made(alone)
