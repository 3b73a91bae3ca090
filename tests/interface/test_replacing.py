"""``replace``, ``at_most`` and ``key_until``: as a program and the command line give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import BadData, Context, PollConsumer

if TYPE_CHECKING:
    from pollconsumer.testing import Sandbox
    from tests.site import Site


def test_changes_are_handled_once_when_they_stop(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[int] = []
    index = app.handler("index")(lambda version: seen.append(version))
    debounced = index.using(key="doc:7", replace=True, in_="30s", at_most="5m")
    first = debounced.enqueue(1)
    for version in range(2, 5):
        sandbox.advance(20)
        handle = debounced.enqueue(version)
        assert (handle.id, handle.duplicate) == (first.id, True)
        sandbox.run()
    assert seen == []
    sandbox.advance(30)
    sandbox.run()
    assert seen == [4]
    assert not debounced.enqueue(5).duplicate


def test_changes_that_do_not_stop_are_handled_after_a_while(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[int] = []
    index = app.handler("index")(lambda version: seen.append(version))
    for version in range(40):
        index.using(key="doc:7", replace=True, in_="30s", at_most="5m").enqueue(version)
        sandbox.run()
        sandbox.advance(10)
    assert seen == [30]


def test_what_comes_while_one_is_in_hand_is_handled_after_it(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[int] = []

    @app.handler("index")
    def index(version: int) -> None:
        seen.append(version)
        if version == 1:
            for later in (2, 3):
                index.using(key="doc:7", replace=True).enqueue(later)

    index.using(key="doc:7", replace=True).enqueue(1)
    sandbox.run()
    assert seen == [1, 3]


def test_a_follow_up_replaces_what_waits(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[int] = []
    app.handler("index")(lambda version: seen.append(version))

    @app.handler("save")
    def save(context: Context, version: int) -> None:
        context.enqueue("index", {"version": version}, key="doc:7", replace=True, in_="1m")

    for version in (1, 2):
        save.enqueue(version)
        sandbox.run()
    sandbox.advance("2m")
    sandbox.run()
    assert seen == [2]


def test_with_a_key_until_the_start_one_waits_at_most(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[str] = []
    again: list[bool | None] = []

    @app.handler("sync")
    def sync(by: str) -> None:
        seen.append(by)
        if by == "first":
            again.extend(sync.using(key="k", key_until="start").enqueue(each).duplicate for each in ("second", "third"))

    assert not sync.using(key="k", key_until="start").enqueue("first").duplicate
    assert sync.using(key="k", key_until="start").enqueue("lost").duplicate
    sandbox.run()
    assert (seen, again) == (["first", "second"], [False, True])


@pytest.mark.parametrize("waits", [lambda context: context.sleep("1h"), lambda _: 1 / 0], ids=["sleeps", "failed"])
def test_one_that_waits_again_holds_a_key_until_the_start_again(
    app: PollConsumer, sandbox: Sandbox, waits: Any
) -> None:
    @app.handler("sync")
    def sync(context: Context) -> None:
        waits(context)

    first = sync.using(key="k", key_until="start").enqueue()
    sandbox.run()
    assert sync.using(key="k", key_until="start").enqueue().id == first.id


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"replace": True}, "replace: True; give the key, too"),
    ({"key_until": "start"}, "key_until: start; give the key, too"),
    ({"key": "k", "at_most": "5m"}, "at_most: 5m; give replace, too"),
    ({"key": "k", "replace": "yes"}, "replace: 'yes'; true or false"),
    ({"key": "k", "key_until": "never"}, "key_until: 'never'; end or start"),
    ({"key": "k", "replace": True, "id": "a"}, "replace: with id; the key says which message is replaced"),
    ({"key": "k", "replace": True, "key_until": "end"}, "replace: with key_until; it is until the start"),
    ({"key": "k", "replace": True, "key_scope": "queue"}, "replace: with key_scope; "),
    ({"key": "k", "replace": True, "in_": "5m", "at_most": "30s"}, "at_most: 30s; shorter than the delay"),
]


@pytest.mark.parametrize(("options", "problem"), REFUSED)
def test_options_that_contradict_each_other_are_refused(
    app: PollConsumer, sandbox: Sandbox, options: dict[str, Any], problem: str
) -> None:
    index = app.handler("index")(lambda: None)
    with pytest.raises(BadData) as caught:
        index.using(**options)
    assert str(caught.value).startswith(problem)
    assert sandbox.messages() == []


def test_callbacks_are_not_replaced(app: PollConsumer, sandbox: Sandbox) -> None:
    index = app.handler("index")(lambda: None)
    with pytest.raises(BadData, match="replace: with then; callbacks stay as they were"):
        index.using(key="k", replace=True, then=index.args())
    assert sandbox.messages() == []


def test_not_to_replace_is_what_is_done_without_the_option(app: PollConsumer, sandbox: Sandbox) -> None:
    index = app.handler("index")(lambda: None)
    index.using(replace=False).enqueue()
    assert len(sandbox.messages()) == 1


def test_the_command_line_replaces_what_waits(site: Site) -> None:
    options = ("--key", "k", "--replace", "--in", "1h", "--at-most", "5h")
    first = site.command("enqueue", "record", '{"name": "a"}', *options)
    again = site.command("enqueue", "record", '{"name": "b"}', *options, "--json")
    assert (first.returncode, first.stderr, again.returncode) == (0, "", 0)
    message = site.json("status", first.stdout.strip())
    assert message["payload"] == {"name": "b"}
    (site.directory / "lines").write_text(
        '{"handler": "record", "payload": {"name": "c"}, "key": "k", "replace": true, "key_lifetime": "1h"}\n'
    )
    assert site.command("enqueue", "--ndjson", "lines").stdout == first.stdout
    site.drain()
    assert site.notes() == ["c"]
