"""Codecs of applications: what the store has is unreadable without them, and what is not encoded is handled as well."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import Context, Item, PollConsumer
from pollconsumer.core.errors import BadData, ConfigurationError, Conflict, PayloadTooLarge
from pollconsumer.core.messages.codec import coded, decoded_value, encoded_json, is_encoded, shown_value
from pollconsumer.core.messages.continuation import FIRST, packed, unpacked
from pollconsumer.core.messages.message import ENCODED, Options, decoded_options
from pollconsumer.core.messages.payloads import Malformed
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.records import rows
from pollconsumer.testing import Sandbox
from tests.inner import calls_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.store.store import Store
    from tests.site import Site

SECRET = "ada@example.org"


class Flipping:
    """Flips the bits of what was encoded under its key, and refuses what was not."""

    digest_key = b"key"

    def __init__(self, key: bytes = b"k1:") -> None:
        self.key = key

    def encode(self, data: bytes) -> bytes:
        return self.key + bytes(each ^ 0xFF for each in data)

    def decode(self, data: bytes) -> bytes:
        if not data.startswith(self.key):
            raise KeyError(data[:3])
        return bytes(each ^ 0xFF for each in data.removeprefix(self.key))


@pytest.fixture
def app() -> PollConsumer:
    return PollConsumer(codec=Flipping())


@pytest.fixture
def sandbox(app: PollConsumer) -> Iterator[Sandbox]:
    with Sandbox(app, start=datetime(2026, 3, 27, tzinfo=UTC)) as sandbox:
        yield sandbox


def everything(store: Store) -> bytes:
    """All that the store has."""
    read = {b"hash": ("HGETALL",), b"list": ("LRANGE", 0, -1), b"zset": ("ZRANGE", 0, -1), b"set": ("SMEMBERS",)}
    wire, found = store.wire, []
    for key in wire.command("KEYS", "*"):
        kind = wire.command("TYPE", key)
        command, *rest = read.get(kind, ("GET",))
        answer = wire.command(command, key, *rest)
        found += answer if isinstance(answer, list) else [answer]
    return b"\n".join(each for each in found if isinstance(each, bytes))


def seen_in_store(app: PollConsumer) -> bool:
    return SECRET.encode() in calls_of(app).ask(everything)


def test_a_payload_and_its_result_are_unreadable_in_the_store_and_readable_here(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    seen: list[str] = []

    @app.handler("mail.send")
    def send(to: str) -> dict[str, str]:
        seen.append(to)
        return {"sent": to}

    handles = [send.enqueue(SECRET), app.enqueue("mail.send", {"to": SECRET})]
    handles += send.enqueue_many([{"to": SECRET}, send.args(SECRET).using(headers={"a": "b"})])
    assert not seen_in_store(app)
    assert handles[0].status().payload == {"to": SECRET}
    assert {each.listed and each.listed.payload["to"] for each in app.messages()} == {SECRET}  # type: ignore[index]
    sandbox.run(raising=True)
    assert seen == [SECRET] * 4
    assert not seen_in_store(app)
    assert {json.dumps(each.wait()) for each in handles} == {json.dumps({"sent": SECRET})}
    assert sandbox.message(handles[0]).result == {"sent": SECRET}
    assert sandbox.messages()[0].payload == {"to": SECRET}


def test_a_payload_that_takes_the_place_of_another_is_unreadable(app: PollConsumer, sandbox: Sandbox) -> None:
    seen: list[str] = []

    @app.handler
    def send(to: str) -> None:
        seen.append(to)

    changed, waiting = send.enqueue("a"), send.using(key="k", replace=True, in_="1m").enqueue("b")
    changed.change(payload={"to": f"{SECRET} 1"})
    assert send.using(key="k", replace=True, in_="1m").enqueue(f"{SECRET} 2").id == waiting.id
    assert not seen_in_store(app)
    sandbox.run_for("2m")
    assert seen == [f"{SECRET} 1", f"{SECRET} 2"]


def test_checkpoints_steps_signals_and_follow_ups_are_unreadable(app: PollConsumer, sandbox: Sandbox) -> None:
    states: list[Any] = []
    calls: list[str] = []

    @app.handler("order")
    def order(context: Context, to: str) -> str:
        states.append(context.state)
        if context.state is None:
            context.checkpoint({"to": to})
            states.append(context.state)
            raise OSError("again")
        paid = context.step("pay", lambda: calls.append(to) or {"paid": to})  # type: ignore[func-returns-value]
        approved = context.wait_for("approved")
        context.enqueue("note", {"text": f"{paid['paid']} {approved['by']}"})
        return to

    @app.handler("note")
    def note(text: str) -> str:
        return text

    handle = order.enqueue(SECRET)
    sandbox.run_for("5m")
    assert states[:3] == [None, {"to": SECRET}, {"to": SECRET}]
    assert not seen_in_store(app)
    assert handle.signal("approved", {"by": SECRET})
    assert not seen_in_store(app)
    sandbox.run_for("5m")
    assert handle.wait() == SECRET
    assert calls == [SECRET]
    (noted,) = app.messages(handler="note")
    assert noted.wait() == f"{SECRET} {SECRET}"
    assert not seen_in_store(app)


def test_chains_callbacks_and_batches_are_unreadable(app: PollConsumer, sandbox: Sandbox) -> None:
    told: list[Any] = []

    @app.handler("first")
    def first(to: str) -> str:
        return to

    @app.handler("then")
    def then(context: Context, to: str) -> str:
        told.append((to, context.previous and context.previous.result))
        return to

    @app.handler("ended")
    def ended(context: Context, to: str) -> None:
        assert context.batch is not None
        told.append((to, [each.result for each in context.batch.results()]))
        batch = context.start_batch("second", ended=then.args(to))
        batch.add(first.args(to))

    last = app.chain(first.args(SECRET), then.args(SECRET)).enqueue()
    first.using(then=then.args(SECRET)).enqueue(SECRET)
    with app.batch("import", ended=ended.args(SECRET)) as batch:
        for _ in range(3):
            batch.add(first.args(SECRET))
    assert not seen_in_store(app)
    sandbox.run_for("5m", raising=True)
    assert not seen_in_store(app)
    assert last.wait() == SECRET
    assert told.count((SECRET, SECRET)) == 2
    assert (SECRET, [SECRET] * 3) in told
    assert (SECRET, None) in told
    assert [each.result for each in app.batches.get("import").results()] == [SECRET] * 3


def test_what_recurs_and_what_it_has_found_is_unreadable(app: PollConsumer, sandbox: Sandbox) -> None:
    found: list[Any] = []

    @app.handler("check")
    def check(context: Context, to: str, occurrence: datetime) -> str:
        found.append(context.previous and context.previous.result)
        assert occurrence == context.occurrence
        return to

    app.recurrences.put("check:1", handler="check", every="1m", payload={"to": SECRET})
    sandbox.run_for("2m", raising=True)
    assert found == [None, SECRET, SECRET]
    assert not seen_in_store(app)
    assert app.recurrences.history("check:1")[0].message.result == SECRET
    for standing in (app.recurrences.get("check:1"), *app.recurrences):
        assert standing.recurrence is not None
        assert standing.previous is not None
        assert (standing.recurrence.payload, standing.previous.result) == ({"to": SECRET}, SECRET)
    (there,) = PollConsumer().recurrences
    assert there.recurrence is not None
    assert is_encoded(there.recurrence.payload)


def test_a_bulk_call_has_each_of_its_messages_decoded_or_failed(app: PollConsumer, sandbox: Sandbox) -> None:
    calls: list[list[str]] = []

    @app.handler("index", bulk=10, max_attempts=1)
    def index(messages: list[Item]) -> list[str]:
        calls.append([each.payload["to"] for each in messages])
        return calls[-1]

    handles = index.enqueue_many([{"to": SECRET}, {"to": "bob"}])
    other = PollConsumer(codec=Flipping(b"k2:"))
    lost = other.enqueue("index", {"to": SECRET})
    plain = PollConsumer().enqueue("index", {"to": "eve"})
    sandbox.run()
    assert calls == [[SECRET, "bob", "eve"]]
    assert [each.wait() for each in handles] == [SECRET, "bob"]
    assert sandbox.message(lost).last_error == "Undecodable: the codec raised KeyError: b'k2:'"
    assert plain.state == "completed"


def test_hooks_of_a_bulk_call_are_told_the_decoded_result_of_the_message_before(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    told: list[Any] = []
    app.after(lambda context, _: told.append(context.previous and context.previous.result))
    find = app.handler("find")(lambda to: to)

    @app.handler("index", bulk=3)
    def index(messages: list[Item]) -> None: ...

    app.chain(find.args(SECRET), index.args()).enqueue()
    sandbox.run()
    assert told == [None, SECRET]


def test_what_is_not_encoded_is_handled_beside_what_is(app: PollConsumer, sandbox: Sandbox) -> None:
    @app.handler("mail.send")
    def send(to: str) -> str:
        return to

    before = PollConsumer().enqueue("mail.send", {"to": "bob"})
    after = send.enqueue(SECRET)
    sandbox.run(raising=True)
    assert [app.message(each.id).wait() for each in (before, after)] == ["bob", SECRET]


def test_a_launch_without_the_codec_leaves_it_for_one_that_has_it(app: PollConsumer, sandbox: Sandbox) -> None:
    handle = app.enqueue("mail.send", {"to": SECRET})
    seen: list[Any] = []
    without = PollConsumer()

    @without.handler("mail.send")
    def send(**payload: Any) -> None:
        seen.append(payload)

    sandbox.run_for("3m")
    message = sandbox.message(handle)
    assert (seen, str(message.state), message.attempts) == ([], "scheduled", 0)
    assert "not begun: its payload is encoded, and PollConsumer() has no codec=" in (message.last_error or "")
    del calls_of(without).handlers["mail.send"]
    app.handler("mail.send")(send.__wrapped__)
    sandbox.run_for("3m")
    assert (seen, handle.state) == ([{"to": SECRET}], "completed")


def test_what_cannot_be_decoded_is_tried_again_then_a_dead_letter_that_keeps_its_payload(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    handle = app.enqueue("mail.send", {"to": SECRET})
    codec = calls_of(app).codec
    assert isinstance(codec, Flipping)
    codec.key = b"k2:"

    @app.handler("mail.send", max_attempts=2)
    def send(to: str) -> str:
        return to

    sandbox.run_for("5m")
    message = app.message(handle.id).status()
    assert (str(message.state), message.attempts) == ("dead", 2)
    assert message.last_error == "Undecodable: the codec raised KeyError: b'k1:'"
    assert is_encoded(message.payload)
    codec.key = b"k1:"
    handle.redrive()
    sandbox.run()
    assert handle.wait() == SECRET
    codec.key = b"k2:"
    with pytest.raises(BadData, match=r"result: .* it is encoded"):
        handle.wait()


def test_a_result_that_cannot_be_encoded_is_dropped_and_not_stored_in_plain_text(
    app: PollConsumer, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_data: bytes) -> bytes:
        raise OSError("no key")

    @app.handler("mail.send")
    def send(to: str) -> str:
        monkeypatch.setattr(calls_of(app).codec, "encode", refuse)
        return to

    handle = send.enqueue(SECRET)
    sandbox.run(raising=True)
    assert (handle.state, handle.wait()) == ("completed", None)
    assert not seen_in_store(app)
    with pytest.raises(OSError, match="no key"):
        send.enqueue(SECRET)
    assert len(sandbox.messages()) == 1


class Odd(Flipping):
    """Encodes as `Flipping`, and decodes to what it is given."""

    def __init__(self, decoded: Any) -> None:
        super().__init__()
        self.decoded = decoded

    def decode(self, data: bytes) -> Any:
        del data
        if isinstance(self.decoded, Exception):
            raise self.decoded
        return self.decoded


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize(
    "decoded",
    [[1], 5, None, b"[1]", b"1", b"null", b'"x"', b"", b"{", b"\xff", ValueError("\n" + SECRET * 1000)],
    ids=lambda each: repr(each)[:20],
)
def test_what_is_decoded_to_something_else_than_an_object_is_undecodable(decoded: Any, *, bulk: bool) -> None:
    app = PollConsumer(codec=Odd(decoded))
    if bulk:

        @app.handler("f", max_attempts=1, bulk=2)
        def f(messages: list[dict[str, Any]]) -> None:
            raise AssertionError(messages)
    else:
        app.handler("f", max_attempts=1)(lambda n: n)
    with Sandbox(app) as sandbox:
        message = app.enqueue("f", {"n": 1})
        sandbox.run()
        status = message.status()
    assert status.state == "dead"
    assert status.last_error is not None
    assert status.last_error.startswith("Undecodable: the codec ")
    assert len(status.last_error) < 250


@pytest.mark.parametrize("decoded", [b"[1]", b"5"])
def test_a_checkpoint_that_is_decoded_to_something_else_is_undecodable(decoded: bytes) -> None:
    codec = Odd(b"{}")
    app = PollConsumer(codec=codec)
    seen: list[object] = []

    @app.handler("f", max_attempts=2)
    def f(context: Context) -> None:
        if context.attempt == 1:
            context.checkpoint({"n": 1})
            codec.decoded = decoded
        else:
            codec.decoded = decoded
            seen.append(context.state)
        raise ValueError

    with Sandbox(app) as sandbox:
        message = f.enqueue()
        codec.decoded = b"{}"
        sandbox.run_for("1m")
        codec.decoded = b"{}"
        last_error = message.status().last_error
    assert seen == []
    assert str(last_error).startswith("Undecodable")


class Growing(Flipping):
    def encode(self, data: bytes) -> bytes:
        return super().encode(data) * 4


class Texting(Flipping):
    def encode(self, data: bytes) -> Any:
        return data.decode()


def test_a_payload_is_measured_as_it_is_stored(sandbox: Sandbox) -> None:
    del sandbox
    app = PollConsumer(codec=Growing())
    large = {"n": "x" * (300 * 1024)}
    waiting = app.enqueue("f", {"n": "x"})
    put: Any = {"handler": "f", "every": "1h", "payload": large}
    for call in (
        lambda: app.enqueue("f", large),
        lambda: waiting.change(payload=large),
        lambda: app.recurrences.put("r", **put),
    ):
        with pytest.raises(PayloadTooLarge, match="bytes, encoded; at most 1048576"):
            call()


def test_an_encoder_that_returns_no_bytes_is_named(sandbox: Sandbox) -> None:
    del sandbox
    with pytest.raises(TypeError, match="the codec's encode must return bytes, not str"):
        PollConsumer(codec=Texting()).enqueue("f")


def test_an_id_is_compared_by_a_keyed_digest_of_the_plain_payload(app: PollConsumer, sandbox: Sandbox) -> None:
    first = app.enqueue("mail.send", {"to": SECRET}, id="a")
    assert app.enqueue("mail.send", {"to": SECRET}, id="a").duplicate
    with pytest.raises(Conflict):
        app.enqueue("mail.send", {"to": "bob"}, id="a")
    other = Flipping()
    other.digest_key = b"another"
    with pytest.raises(Conflict):
        PollConsumer(codec=other).enqueue("mail.send", {"to": SECRET}, id="a")
    assert len(sandbox.messages()) == 1
    assert first.id == "a"


def test_without_a_key_for_digests_ids_are_compared_by_handler_alone(sandbox: Sandbox) -> None:
    class Keyless:
        encode, decode = Flipping.encode, Flipping.decode
        key = b"k1:"

    app = PollConsumer(codec=Keyless())
    app.enqueue("mail.send", {"to": SECRET}, id="a")
    assert app.enqueue("mail.send", {"to": "bob"}, id="a").duplicate
    with pytest.raises(Conflict):
        app.enqueue("other", {"to": SECRET}, id="a")
    assert len(sandbox.messages()) == 1


@pytest.mark.parametrize("codec", [3, object(), Flipping])
def test_a_codec_encodes_and_decodes(codec: Any) -> None:
    if codec is Flipping:
        PollConsumer(codec=codec())
    else:
        with pytest.raises(ConfigurationError, match="codec"):
            PollConsumer(codec=codec)


@pytest.mark.parametrize("value", [{"a": 1}, {}, [1, "ö"], "text", 0, None, {ENCODED: "x"}])
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    codec = Flipping()
    stored = json.loads(encoded_json(json.dumps(value).encode(), codec))
    assert is_encoded(stored)
    assert decoded_value(stored, codec) == value
    assert shown_value(stored) == {"encoded_bytes": len(json.dumps(value)) + 3}
    assert shown_value({"a": 1}) == {"a": 1}


def test_versions_before_leave_it_to_newer_ones() -> None:
    plain = new_message("mail.send", {"to": SECRET})
    message = coded(plain, Flipping())
    assert [rows.new_record(each)[:1] for each in (plain, message)] == [b"A", b"C"]
    assert decoded_options(b'{"encoded":true}') == (Options(encoded=True), False)
    assert packed(message).keys() > FIRST
    assert unpacked(packed(message)) == message
    assert coded(message, Flipping()) is message
    with pytest.raises(Malformed, match="encoded is 1"):
        decoded_options(b'{"encoded":1}')


HANDLERS = """
from pollconsumer import Context, PollConsumer

class Flipping:
    def encode(self, data): return bytes(each ^ 0xFF for each in data)
    decode = encode

app = PollConsumer(codec=Flipping())

@app.handler("mail.send", isolation={isolation!r})
def send(context: Context, to: str) -> str:
    if context.state is None:
        context.checkpoint({{"to": to}})
        raise OSError("again")
    context.enqueue("note", {{"to": to}})
    return context.step("pay", lambda: context.state["to"])

@app.handler("note")
def note(to: str) -> None: ...
"""


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_commands_send_it_encoded_show_its_size_and_carry_it_as_it_is(site: Site, isolation: str) -> None:
    (site.directory / "handlers.py").write_text(HANDLERS.format(isolation=isolation))
    sent = site.enqueue("mail.send", to=SECRET)
    lines = site.directory / "lines"
    payload = {ENCODED: json.loads(encoded_json(json.dumps({"to": SECRET}).encode(), Flipping(b"")))[ENCODED]}
    lines.write_text(
        "".join(json.dumps({"handler": "mail.send", "payload": each}) + "\n" for each in (payload, {"to": SECRET}))
    )
    others = site.command("enqueue", "--ndjson", str(lines)).stdout.split()
    site.command("reschedule", sent, "--payload", json.dumps({"to": SECRET}))
    site.command("recurrences", "add", "r", "mail.send", json.dumps({"to": SECRET}), "--every", "1d")
    shown = site.json("status", sent)
    assert shown["payload"] == {"encoded_bytes": len(json.dumps({"to": SECRET}, separators=(",", ":")))}
    for _ in range(3):
        site.drain("--linger", "2s")
    for message in (sent, *others):
        shown = site.json("status", message)
        assert (shown["state"], [*shown["result"]]) == ("completed", ["encoded_bytes"])
    notes = site.json("list", "--handler", "note")
    assert {(each["state"], *each["payload"]) for each in notes} == {("completed", "encoded_bytes")}
    assert len(notes) == 4
    copy = site.directory / "copy"
    assert site.command("store", "export", str(copy), "--yes").returncode == 0
    assert SECRET not in copy.read_text()
    assert SECRET not in site.command("list", "--json").stdout + site.command("recurrences", "list", "--json").stdout
