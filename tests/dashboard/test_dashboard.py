"""What the pages of the dashboard show, to whom, and that nothing of a message acts there."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.choices import Overlap
from pollconsumer.core.messages.message import CREATED_BY
from pollconsumer.core.messages.message_steps import Step, StepEntry, as_recorded
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.dashboard.access import HEADERS, LIVE
from pollconsumer.dashboard.excerpts import Excerpts, Wanted, error_key_of, sweep
from pollconsumer.dashboard.page_actions import SWEEP_WITHIN
from pollconsumer.store.actions import HandlerPauses, MessageActions
from pollconsumer.store.audit_log import acting_as, note
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.recurrences import LaunchRecurrences
from pollconsumer.store.store import Store
from tests.conftest import NAMESPACE
from tests.dashboard.batch_scene import a_batch
from tests.dashboard.pages import HOST, TOKEN, Document, acting, admitted, browser, reading, seen
from tests.dashboard.scenes import Scene, bad_hour, usual
from tests.leaving_out import long
from tests.site import wait_until
from tests.store.acting import HOUR, QUEUE, Launch, die, finish, message
from tests.store.batching import HOME
from tests.store.servers import Impatient, server_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.testclient import TestClient

    from tests.store.servers import Server

HOSTILE = "</title></pre><script>alert('x')</script>\"onmouseover=\"x\u202e\x1b[31m{{7*7}}"


@pytest.fixture
def wire(valkey: Server) -> Wire:
    return valkey.wire()


@pytest.fixture
def scene(wire: Wire) -> Scene:
    return Scene(wire, NAMESPACE, share=0.02)


def crawled(client: TestClient) -> dict[str, Document]:
    """Pages to which links lead, from the first one on, as many of each kind as show that they do."""
    found: dict[str, Document] = {}
    ahead, left = (
        ["./"],
        Counter(
            {"./": 1, "search": 1}
            | dict.fromkeys(("queue", "message", "handler", "recurrence", "dead", "past", "audit"), 12)
        ),
    )
    while ahead:
        address = ahead.pop(0)
        kind = address.partition("?")[0]
        if address not in found and left[kind]:
            left[kind] -= 1
            found[address] = seen(client, address)
            ahead += [link for link in found[address].links() if link != "#content"]
            assert {link.partition("?")[0] for link in ahead} <= left.keys()
    return found


def test_the_first_page_shows_launches_queues_what_is_in_flight_dead_due_and_recurring(
    scene: Scene, wire: Wire
) -> None:
    usual(scene)
    page = seen(browser(wire), "/")
    for text in ("consumer, mail", "60 launches", "consumer, reports", "mover", "19,494 completed", "now-0", "later-0"):
        assert text in page.text
    for text in ("30 2 * * *", "Europe/Paris", "every 5m", "mail.send", "The next 10 of 14", "p90"):
        assert text in page.text
    pictures = [picture["aria-label"] or "" for picture in page.all("svg")]
    assert [label for label in pictures if label.startswith("consumer, mail")] == [
        "consumer, mail: launches of the last hour",
        "consumer, mail: messages of each launch",
    ]
    assert "how long messages waited for a launch" in pictures
    assert page.forms() == []


@pytest.mark.parametrize(
    "head", ["started", "waited", "margin", "gap", "offset", "exit", "late", "per minute", "oldest ready", "in flight"]
)
def test_a_head_that_is_no_everyday_word_is_explained_by_a_tooltip(head: str, scene: Scene, wire: Wire) -> None:
    usual(scene)
    found = re.findall(rf"<th([^>]*)>{head}</th>", browser(wire).get("/").text)
    assert found
    assert all(re.fullmatch(r' title="\w[^"]{15,}"', each) for each in found)


def test_the_table_of_launches_has_their_offsets_and_exits(scene: Scene, wire: Wire) -> None:
    usual(scene)
    cells = re.findall(r'<td data-label="(offset|exit)">([^<]*)</td>', browser(wire).get("/").text)
    assert cells[:2] == [("offset", "300ms"), ("exit", "20ms")]


def test_what_is_wrong_stands_first(scene: Scene, wire: Wire) -> None:
    bad_hour(scene)
    text = seen(browser(wire), "/").text
    assert text.index("launches of the consumer died") < text.index("Launches of the last hour")
    assert "4 died" in text
    assert "paused" in text
    assert "25 dead letters; the table counts all of them." in text


def test_every_link_leads_to_a_page(scene: Scene, wire: Wire) -> None:
    usual(scene)
    pages = crawled(browser(wire))
    kinds = {address.partition("?")[0] for address in pages}
    assert kinds == {"./", "queue", "message", "handler", "recurrence", "past", "audit", "search"}
    assert len(pages) > 24


def test_an_empty_store_has_a_page_that_says_what_to_do(wire: Wire) -> None:
    text = seen(browser(wire), "/").text
    assert "pollconsumer init" in text
    assert "pollconsumer enqueue HANDLER" in text


def test_a_link_to_a_handler_that_has_not_run_leads_to_a_page(scene: Scene, wire: Wire) -> None:
    RedisStore(wire, NAMESPACE).enqueue([message("a")])
    scene.recurrences("mail", nightly={"handler": "never.run", "every": 86400.0})
    assert "No message of this handler" in crawled(browser(wire))["handler?name=never.run"].text


def test_the_page_of_a_recurrence_shows_the_options_of_its_messages_and_its_offset(scene: Scene, wire: Wire) -> None:
    RedisStore(wire, NAMESPACE).enqueue([message("a")])
    options = {"expires": 600.0, "max_attempts": 2, "order_key": "recurrence:x"}
    given = {"offset": 3000, "options": options, "headers": {"team": "ops"}, "overlap": Overlap.QUEUE}
    scene.recurrences("mail", x={"handler": "never.run", "every": 86400.0, **given})
    text = seen(browser(wire), "/recurrence?name=x").text
    for shown in (
        "every 1d, 3s later",
        "expires",
        "10m",
        "max attempts",
        "recurrence:x",
        "header team",
        "ops",
        "queue",
    ):
        assert shown in text


def attack(wire: Wire) -> None:
    """Write hostile text wherever text can be written."""
    store = RedisStore(wire, NAMESPACE)
    payload = encode_payload({HOSTILE: HOSTILE})
    store.enqueue([message(f"{n}{HOSTILE}", payload=payload, handler=f"handler{HOSTILE}") for n in range(3)])
    launch = Launch(store)
    dead, done, _ = launch.reserve(3)
    launch.settle(die(dead, f"{HOSTILE}\0Traceback\n{HOSTILE}"), finish(done, json.dumps({HOSTILE: HOSTILE})))
    store.enqueue([message(f"late{HOSTILE}", handler=f"handler{HOSTILE}", delay=HOUR)])
    with acting_as(HOSTILE):
        note(wire, store.keys, HOSTILE, QUEUE, [HOSTILE])
    scene = Scene(wire, NAMESPACE)
    scene.launch(3, role=HOSTILE, queues=(HOSTILE,), stop_reason=HOSTILE)
    scene.durations(**{HOSTILE: 1.0})
    tick = Recurrence(f"tick{HOSTILE}", HOSTILE, every=60.0, queue=QUEUE, payload={HOSTILE: HOSTILE})
    LaunchRecurrences(wire, NAMESPACE).define(HOSTILE, [QUEUE], [tick], lambda _: None)


def test_text_of_others_is_shown_and_does_nothing(wire: Wire) -> None:
    attack(wire)
    client = browser(wire)
    pages = crawled(client)
    kinds = {address.partition("?")[0] for address in pages}
    assert kinds == {"./", "queue", "message", "handler", "recurrence", "dead", "past", "audit", "search"}
    for page in pages.values():
        for tag, attributes in page.elements:
            assert tag not in ("script", "iframe", "object", "base", "style")
            assert not any(name.startswith("on") or name == "style" for name in attributes)
        assert "\x1b" not in page.text
        assert "\u202e" not in page.text
    for address in ("./", next(address for address in pages if address.startswith("message?"))):
        assert "<script>alert('x')</script>" in pages[address].text
        assert "{{7*7}}" in pages[address].text
        assert "\\u202e" in pages[address].text


def test_a_payload_that_is_none_and_one_that_is_huge_are_shown_in_part(wire: Wire) -> None:
    store = RedisStore(wire, NAMESPACE)
    store.enqueue([message("huge", payload=encode_payload({"text": "x" * 900_000})), message("broken")])
    deep = b'{"a":' + b"[" * 600 + b"]" * 600 + b"}"
    store.enqueue([message("deep", payload=deep)])
    wire.command("HSET", store.keys.queue(QUEUE, "records"), "broken", b"A" + bytes(10) + b"handler\nno JSON")
    client = browser(wire)
    assert "see 'pollconsumer status'" in seen(client, "/message?queue=mail&id=huge").text
    assert len(client.get("/message?queue=mail&id=huge").content) < 100_000
    assert "no JSON" in seen(client, "/message?queue=mail&id=broken").text
    assert "deep" in seen(client, "/message?queue=mail&id=deep").text
    assert len(client.get("/queue?name=mail").content) < 20_000


class Counting(Wire):
    """Counts the commands that it sends, and the bytes that come back."""

    commands = answered = 0

    def once(self, commands: Sequence[Any], *, blocking: float = 0.0) -> list[Any]:
        answers = super().once(commands, blocking=blocking)
        self.commands += len(commands)
        self.answered += len(repr(answers))
        return answers


def test_a_page_reads_no_more_of_many_messages_than_of_some(valkey: Server, wire: Wire) -> None:
    store = RedisStore(wire, NAMESPACE)

    def cost(read: str) -> tuple[int, int]:
        counting = Counting(valkey.url, Impatient)
        found = reading(counting)
        if read == "front":
            found.front()
        else:
            found.handler("handler")
        counting.close()
        return counting.commands, counting.answered

    def more(count: int) -> None:
        store.enqueue([message(f"ready{count}-{n}") for n in range(count)])
        store.enqueue([message(f"ranked{count}-{n}", priority=1) for n in range(count)])
        store.enqueue([message(f"scheduled{count}-{n}", delay=HOUR) for n in range(count)])

    more(300)
    few = cost("front"), cost("handler")
    more(5000)
    many = cost("front"), cost("handler")
    for (commands, answered), (most_commands, most_answered) in zip(many, few, strict=True):
        assert commands <= most_commands
        assert answered < 1.2 * most_answered


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("/nothing", 404, "there is no such page"),
        ("/message", 404, "no id given"),
        ("/message?id=nobody", 404, "no such message: nobody"),
        ("/message?id=nobody&queue=../../etc", 409, "queue name"),
        ("/message?id=" + "x" * 2000, 404, "no id given"),
        ("/queue?name=nowhere", 404, "no such queue"),
        ("/queue?name=mail&state=lost", 404, "no such state"),
        ("/queue?name=mail&skip=-5", 200, "a"),
        ("/queue?name=mail&skip=99999999999999999999", 200, "a"),
        ("/handler?name=nobody", 200, "No message of this handler is among them"),
        ("/dead?queue=nowhere", 404, "no such queue"),
        ("/dead?error=nothing", 200, "no dead letter has it"),
        ("/recurrence?name=nobody", 404, "no such recurrence"),
        ("/../../etc/passwd", 404, "there is no such page"),
        ("/templates/front.html", 404, "there is no such page"),
        ("/?" + "x" * 5000, 414, "too long"),
    ],
)
def test_an_address_that_leads_nowhere_is_answered_in_a_line(address: str, status: int, said: str, wire: Wire) -> None:
    RedisStore(wire, NAMESPACE).enqueue([message("a")])
    answer = browser(wire).get(address)
    assert answer.status_code == status
    assert said in answer.text


def test_a_message_id_that_two_queues_have_asks_for_the_queue(wire: Wire) -> None:
    RedisStore(wire, NAMESPACE).enqueue([message("a"), message("a", queue="reports")])
    answer = browser(wire).get("/message?id=a")
    assert answer.status_code == 400
    assert "mail and reports" in Document(answer.text).text


def test_the_page_of_a_message_shows_its_steps_and_signals(wire: Wire) -> None:
    store = RedisStore(wire, NAMESPACE)
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    for entry in (
        StepEntry(1, 1, as_recorded(Step("charge", 1, {"receipt": "<7>"}))),
        StepEntry(2, 2, as_recorded(Step("approved", 1, None, HOUR)), "approved"),
    ):
        store.record(launch.claim, reservation, entry)
    MessageActions(wire, NAMESPACE).signal(reservation.queue, "a", "other", "value")
    text = Document(browser(wire).get("/message?id=a").text).text
    for shown in ('{"receipt": "<7>"}', "until 1970-01-01 01:00:00", "waits for signal", "signal other"):
        assert shown in text


def test_the_page_of_a_message_says_whose_end_it_waits_for_and_who_created_it(wire: Wire) -> None:
    store = RedisStore(wire, NAMESPACE)
    store.enqueue([message("first", order="k"), message("next", order="k", headers={CREATED_BY: "eve", "n": "1"})])
    launch = Launch(store)
    assert len(launch.reserve(2)) == 1
    page = seen(browser(wire), "message?queue=mail&id=next")
    text = " ".join(page.text.split())
    assert "ready, waits until first of its order key has ended" in text
    assert "message?queue=mail&id=first" in page.links()
    assert "order keykcreated byeveheader n1" in text
    assert "waits" not in seen(browser(wire), "message?queue=mail&id=first").text


def test_a_store_that_is_away_is_a_page_not_a_crash(wire: Wire) -> None:
    answer = browser(Wire("unix:///nonexistent/socket", Impatient)).get("/")
    assert answer.status_code == 503
    assert "store unreachable" in Document(answer.text).text
    del wire


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:8080", "127.0.0.1.evil.test", "[::1].evil.test", "", "localhost.evil.test"]
)
def test_a_name_that_somebody_else_points_here_is_refused(host: str, wire: Wire) -> None:
    answer = browser(wire).get("/", headers={"host": host})
    assert answer.status_code == 421
    assert NAMESPACE not in answer.text


@pytest.mark.parametrize("host", [HOST, "localhost", "localhost:9000", "[::1]:8080", "10.0.0.7", "LOCALHOST:1"])
def test_an_address_is_answered_under_any_port_as_behind_a_tunnel(host: str, wire: Wire) -> None:
    assert browser(wire).get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("address", ["/", "/nothing", "/style.css", "/icon.svg", "/message?id=nobody"])
def test_every_answer_tells_the_browser_to_run_nothing_and_to_keep_nothing(address: str, wire: Wire) -> None:
    headers = browser(wire).get(address).headers
    assert {name: headers[name] for name in dict(HEADERS)} == dict(HEADERS)
    assert headers["cache-control"] == "no-store"
    assert "script-src" not in headers["content-security-policy"]


def test_only_the_page_that_is_read_again_may_run_a_script_and_only_a_file_of_ours(wire: Wire) -> None:
    client = browser(wire)
    live = client.get("/?refresh=1")
    assert {name: live.headers[name] for name in dict(LIVE)} == dict(LIVE)
    assert [each["src"] for each in Document(live.text).all("script")] == ["live.js"]
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in live.text
    for address in ("/", "/?refresh=no", "/dead?refresh=5", "/live.js"):
        answer = client.get(address)
        assert "script-src" not in answer.headers["content-security-policy"]
        assert "<script" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("address", ["/", "/act", "/message?id=a"])
def test_without_actions_nothing_but_reading_is_answered(method: str, address: str, wire: Wire) -> None:
    RedisStore(wire, NAMESPACE).enqueue([message("a")])
    answer = browser(wire, token=None).request(method, address, data={"what": "cancel", "queue": QUEUE, "id": "a"})
    assert answer.status_code == (403 if (method, address) == ("POST", "/act") else 404)


def test_the_token_is_taken_from_the_address_once_and_kept_in_a_cookie_that_no_other_site_sends(wire: Wire) -> None:
    client = browser(wire, token=TOKEN)
    assert client.get("/").status_code == 403
    assert client.get("/", params={"token": TOKEN + "x"}).status_code == 403
    welcome = client.get("/", params={"token": TOKEN})
    assert (welcome.status_code, welcome.headers["location"]) == (303, "./")
    cookie = welcome.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert client.get("/").status_code == 200


def test_without_the_cookie_no_page_says_anything(scene: Scene, wire: Wire) -> None:
    usual(scene)
    client = browser(wire, token=TOKEN, acts=True)
    for address in ("/", "/nothing", "/queue?name=mail", "/message?id=now-0", "/handler?name=mail.send"):
        answer = client.get(address)
        assert answer.status_code == 403
        assert "mail.send" not in answer.text
    assert client.post("/act", data={"what": "pause", "queue": QUEUE}).status_code == 403


def test_every_form_of_the_pages_can_be_sent(scene: Scene, wire: Wire, valkey: Server) -> None:
    """Each is sent as it stands on its page; each is possible, and answers with a page."""
    bad_hour(scene)
    RedisStore(wire, NAMESPACE).enqueue([message("scheduled", delay=HOUR)])
    a_batch(wire)
    app = PollConsumer(store=valkey.url, namespace=NAMESPACE)
    app.handler("mail.send")(lambda to="ada": to)
    app.recurrences.put("hourly", handler="mail.send", every="1h")
    client = admitted(wire, app)
    addresses = [
        "put?name=hourly",
        "./",
        "enqueue?handler=mail.send",
        "message?queue=mail&id=dead-1",
        "message?queue=mail&id=scheduled",
        "dead?queue=mail",
        "queue?name=mail",
        "handler?name=mail.send",
        "handler?name=mail.send",
        "recurrence?name=check",
        "recurrence?name=check",
        f"batch?queue={HOME}&id=b",
    ]
    done, again = set(), set()
    for address in addresses:
        for form in sorted(seen(client, address).forms(), key=lambda form: form["what"] == "redrive"):
            if (what := form["what"]) not in done and not (what == "remove_recurrence" and address not in again):
                answer = client.post("/act", data=form)
                assert answer.status_code == 303, Document(answer.text).text
                seen(client, answer.headers["location"])
                done.add(what)
        again.add(address)
    assert done == acting(wire).actions.keys()


def form_of(client: TestClient, address: str, what: str) -> dict[str, str]:
    return next(form for form in seen(client, address).forms() if form["what"] == what)


def test_an_action_does_what_the_command_does(wire: Wire) -> None:
    store = RedisStore(wire, NAMESPACE)
    store.enqueue([message("dead"), message("later", delay=HOUR)])
    launch = Launch(store)
    launch.settle(die(launch.reserve()[0]))
    tick = Recurrence("tick", "handler", every=3600.0, queue=QUEUE)
    LaunchRecurrences(wire, NAMESPACE).define("consumer:mail", [QUEUE], [tick], lambda _: None)
    client = admitted(wire)
    found = reading(wire)

    def send(address: str, what: str) -> None:
        assert client.post("/act", data=form_of(client, address, what)).status_code == 303

    send("message?queue=mail&id=dead", "redrive")
    assert found.message("dead", QUEUE).message.state == "ready"
    send("message?queue=mail&id=later", "cancel")
    assert found.message("later", QUEUE).message.state == "cancelled"
    send("queue?name=mail", "pause")
    assert found.front().overview.queues[0].paused
    send("./", "resume")
    assert not found.front().overview.queues[0].paused
    send("recurrence?name=tick", "trigger")
    assert found.front().overview.queues[0].ready == 2
    send("message?queue=mail&id=later", "rerun")
    assert found.front().overview.queues[0].ready == 3
    send("handler?name=handler", "pause_handler")
    assert found.handler("handler").paused
    send("handler?name=handler", "resume_handler")
    assert not found.handler("handler").paused
    send("recurrence?name=tick", "pause_recurrence")
    assert found.recurrence("tick").status.paused
    send("recurrence?name=tick", "resume_recurrence")
    assert not found.recurrence("tick").status.paused
    send("recurrence?name=tick", "remove_recurrence")
    assert found.front().recurrences == []
    noted = [each.what for each in found.audit().audit]
    assert noted == [
        "remove",
        "resume",
        "pause",
        "resume",
        "pause",
        "rerun",
        "trigger",
        "resume",
        "pause",
        "cancel",
        "redrive",
    ]


def letters(wire: Wire, *, mail: int, reports: int = 0) -> None:
    """Dead letters of two queues and two handlers, with three errors; one keeps its unique key from another."""
    store = RedisStore(wire, NAMESPACE)
    for queue, total in (("mail", mail), ("reports", reports)):
        for first in range(0, total, 100):
            part = range(first, min(total, first + 100))
            store.enqueue([message(f"{queue}-{n}", queue=queue, handler=f"handler{n % 2}") for n in part])
            launch = Launch(store, queue=queue)
            launch.settle(
                *(die(each, f"Error{n % 3}") for n, each in zip(part, launch.reserve(len(part)), strict=True))
            )


ALL_OF = [
    ("dead", 900, 0),
    ("dead?queue=mail", 600, 300),
    ("dead?handler=handler1", 450, 450),
    ("dead?queue=mail&handler=handler0", 300, 600),
    (f"dead?error={error_key_of('Error2')}", 300, 600),
    ("./", 150, 750),  # of a handler with the same error
]


@pytest.mark.parametrize(
    ("what", "page", "done", "left"),
    [
        *(("redrive_all", *each) for each in ALL_OF),
        *(("purge_all", *each) if each[0] == "./" else long("purge_all", *each) for each in ALL_OF),
    ],
)
def test_all_dead_letters_of_a_queue_a_handler_or_an_error_are_redriven_or_purged(
    what: str, page: str, done: int, left: int, wire: Wire
) -> None:
    letters(wire, mail=600, reports=300)
    client = admitted(wire)
    form = form_of(client, page, "redrive_all") | {"what": what}
    answer = client.post("/act", data=form)
    assert answer.status_code == 303
    shown = seen(client, answer.headers["location"])
    assert f"{done} dead letters {'redriven' if what == 'redrive_all' else 'purged'}." in shown.text
    assert "dead letters redriven." not in seen(client, answer.headers["location"]).text  # said once
    counts = reading(wire).front().overview.queues
    assert sum(queue.dead for queue in counts) == left
    assert sum(queue.ready for queue in counts) == (done if what == "redrive_all" else 0)


def test_equal_errors_are_one_line_of_the_last_that_were_looked_at(wire: Wire) -> None:
    letters(wire, mail=700)
    page = reading(wire).dead(Wanted())
    assert [(each.last.handler, each.last.error) for each in page.groups[:2]] == [
        ("handler1", "Error0"),
        ("handler0", "Error2"),
    ]
    assert sum(each.number for each in page.groups) == 500
    text = seen(browser(wire), "/dead").text
    assert "700; the table counts the last 500." in text


def test_what_cannot_be_redriven_is_said_and_does_not_hold_up_the_rest(wire: Wire) -> None:
    letters(wire, mail=450)
    keys = RedisStore(wire, NAMESPACE).keys
    wire.command("HDEL", keys.queue("mail", "records"), *(f"mail-{n}" for n in range(0, 450, 3)))
    client = admitted(wire)
    answer = client.post("/act", data=form_of(client, "dead", "redrive_all"))
    assert "300 dead letters redriven, 150 left: record lost" in seen(client, answer.headers["location"]).text


def test_letters_that_die_again_meanwhile_are_not_redriven_for_ever(wire: Wire) -> None:
    letters(wire, mail=450)
    store = RedisStore(wire, NAMESPACE)
    interventions, again = MessageActions(wire, NAMESPACE), Launch(store)

    def redrive(queue: str, ids: list[str]) -> list[str]:
        done, now = interventions.redrive(queue, ids), server_ms(wire)
        wait_until(lambda: server_ms(wire) > now, "a later instant")
        again.settle(*(die(each, "again") for each in again.reserve(len(done))))
        return done

    *earlier, last = sweep(Excerpts(Store(wire, NAMESPACE)), Wanted(), redrive)
    assert (last, len(earlier)) == ((450, 0, False), 4)


def test_an_action_on_many_ends_in_time_and_says_that_there_are_more(wire: Wire) -> None:
    letters(wire, mail=900)
    clock = count(0.0, SWEEP_WITHIN / 4)
    acts = acting(wire, clock=lambda: next(clock))
    for _ in range(2):
        *_, said = acts.act({"what": "purge_all"})
        assert said == "400 dead letters purged; that took 20 s: press the button again for the rest"


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        ({"token": ""}, {}),
        ({"token": TOKEN}, {}),
        ({}, {"origin": "http://evil.test"}),
        ({}, {"origin": "null"}),
        ({}, {"sec-fetch-site": "cross-site"}),
        ({}, {"sec-fetch-site": "same-site"}),
        ({}, {"sec-fetch-site": "cross-site", "origin": f"http://{HOST}"}),
    ],
)
def test_a_form_from_elsewhere_is_refused(change: dict[str, str], headers: dict[str, str], wire: Wire) -> None:
    RedisStore(wire, NAMESPACE).enqueue([message("a", delay=HOUR)])
    client = admitted(wire)
    form = form_of(client, "message?queue=mail&id=a", "cancel")
    assert client.post("/act", data=form | change, headers=headers).status_code == 403
    assert client.get("/act", params=form).status_code == 404
    assert reading(wire).message("a", QUEUE).message.state == "scheduled"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"},
        {"origin": f"http://{HOST}"},  # a browser of before 2023, or one that is not on this machine and has no TLS
        {"origin": "null", "sec-fetch-site": "same-origin"},  # behind a proxy that sends `Referrer-Policy: no-referrer`
    ],
)
def test_a_form_of_the_page_is_taken(headers: dict[str, str], wire: Wire) -> None:
    RedisStore(wire, NAMESPACE).enqueue([message("a", delay=HOUR)])
    client = admitted(wire)
    form = form_of(client, "message?queue=mail&id=a", "cancel")
    assert client.post("/act", data=form, headers=headers).status_code == 303


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"what": "redrive", "queue": QUEUE, "id": "a"}, 409),
        ({"what": "cancel", "queue": QUEUE, "id": "nobody"}, 404),
        ({"what": "cancel", "queue": QUEUE}, 409),
        ({"what": "pause", "queue": "nowhere"}, 404),
        ({"what": "pause", "queue": "no name"}, 409),
        ({"what": "trigger", "name": "nobody"}, 404),
        ({"what": "rerun", "queue": QUEUE, "id": "a"}, 409),
        ({"what": "rerun", "queue": QUEUE, "id": "nobody"}, 404),
        ({"what": "resume_handler", "name": "nobody"}, 404),
        ({"what": "pause_handler", "name": "no name"}, 409),
        ({"what": "pause_handler"}, 409),
        *(({"what": f"{what}_recurrence", "name": "nobody"}, 404) for what in ("pause", "resume", "remove")),
        ({"what": "purge", "queue": QUEUE}, 404),
        ({"what": "purge_all", "queue": "nowhere"}, 404),
        ({}, 409),
    ],
)
def test_what_cannot_be_done_is_said(form: dict[str, str], status: int, wire: Wire) -> None:
    RedisStore(wire, NAMESPACE).enqueue([message("a")])
    client = admitted(wire)
    token = form_of(client, "./", "pause")["token"]
    answer = client.post("/act", data=form | {"token": token})
    assert answer.status_code == status
    Document(answer.text)


def test_a_form_is_shown_only_for_what_is_possible(wire: Wire) -> None:
    store = RedisStore(wire, NAMESPACE)
    store.enqueue([message("reserved"), message("ready")])
    Launch(store).reserve(1)
    client = admitted(wire)
    assert seen(client, "message?queue=mail&id=reserved").forms() == []
    assert [form["what"] for form in seen(client, "message?queue=mail&id=ready").forms()] == ["cancel"]


def test_what_was_done_to_a_handler_names_no_queue(wire: Wire) -> None:
    with acting_as("ada"):
        HandlerPauses(wire, NAMESPACE).pause("mail.send")
    page = seen(browser(wire), "/audit")
    assert "pause – mail.send" in " ".join(page.text.split())
    assert not [link for link in page.links() if link.startswith("queue")]
