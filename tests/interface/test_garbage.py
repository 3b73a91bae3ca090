"""Garbage in any key: no launch and no command ends in a traceback, and a launch serves all other queues."""

from __future__ import annotations

import io
import json
import shutil
import sys
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.messages.continuation import FIRST, STORED_AS, Continuation, encoded, packed
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.dashboard import DashboardEndpoint, Visitor
from pollconsumer.interface import cli
from pollconsumer.interface.api.registry import registry
from pollconsumer.store.queues.batches import BATCH_FIELDS, NewBatch
from pollconsumer.web.web_exchange import WebRequest
from tests.conftest import NAMESPACE
from tests.garbage import callback, damage, dumped, fill, keys_of, kinds_of_garbage
from tests.launched_here import launches_here
from tests.leaving_out import long
from tests.store.acting import QUEUE, message
from tests.store.servers import server_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.garbage import Keyed, callback
    from tests.store.servers import Server

HANDLERS = """
from pollconsumer import PollConsumer
from pollconsumer.interface.api.app import calls_of
app = PollConsumer()
@app.handler("ok", queue="mail")
def ok(**_): pass
@app.handler
def other(): pass
@app.handler
def breaks(key): calls_of(app).ask(lambda store: store.wire.all([("DEL", key), ("SET", key, "x")]))
"""
CONFIG = """
handlers = ["handlers_of_garbage"]
spool = "spool"
[consumer]
estimated_duration = "1ms"
[queues.mail]
quota = "1000/1h"
rate = "100/1h"
max_in_flight = 50
"""
STATES = ("scheduled", "ready", "reserved", "completed", "dead", "cancelled", "expired")
READING = [
    "status", "status --json", "status plain", "status orphan --json", "status done", "status nowhere",
    "list", "list --json", "list --queue mail --handler ok", *(f"list --state {state}" for state in STATES),
    "list --recurrence put", "dead list", "dead show dead", "launches", "launches --json",
    "batch list", "batch show b", "batch show open --json",
    "recurrences list", "recurrences list --json", "recurrences history put", "recurrences next hourly",
    "metrics", "doctor", "doctor --json", "lease show", "queue list", "interventions", "check",
    "store export -",
]  # fmt: skip
WRITING = [
    "enqueue ok", "enqueue ok --id plain", "enqueue ok --key k2 --queue mail",
    "enqueue ok --concurrency-key c --queue mail --in 1h",
    "cancel plain", "cancel first", "cancel late", "cancel --queue mail --yes", "cancel --running orphan",
    "reschedule late --in 1h", "signal orphan go", "dead redrive dead", "dead purge dead --yes",
    "dead purge --all --yes", "queue pause mail", "queue resume mail", "queue purge mail --yes",
    "recurrences pause put", "recurrences resume put", "recurrences trigger put", "recurrences remove put",
    "recurrences add new ok --every 1h --queue mail", "batch cancel b --yes", "batch redrive b",
    "handler pause ok", "handler resume ok", "lease break --role consumer",
]  # fmt: skip
PAGES = [
    "/", "/queue?name=mail", "/queue?name=mail&state=dead", "/queue?name=mail&state=scheduled", "/handler?name=ok",
    "/dead", "/recurrence?name=put", "/recurrence?name=hourly", "/batches?queue=mail", "/batch?queue=mail&id=b",
    "/message?id=plain", "/message?id=orphan", "/search?q=plain", "/search?header=a=b", "/past?of=day",
    "/audit",
]  # fmt: skip
KEYS = keys_of(NAMESPACE)
SHARES = 16
"""Of the kinds of garbage a run has one share for each key; those that are left out, all."""
FOUND = [
    *((word, "value " + kind, act) for word in ("records", "rows") for kind in ("empty", "a byte") for act in (
        "list", "dead list", "dead purge dead --yes", "cancel plain", "status", "/", "/dead"
    )),
    ("handed_out", "value empty", "run"), ("uncounted", "value a word", "run"), ("uncounted", "value empty", "move"),
    ("batches", "value empty", "run"), ("batches", "value a byte", "batch list"), ("batches", "value flipped", "run"),
    ("batch_callbacks", "value an array", "batch show b"), ("batch_callbacks", "value a byte", "/batches?queue=mail"),
    ("places_taken", "value a word", "run"), ("rates", "value longer", "run"), ("dead_letters", "score -inf", "/dead"),
    ("{}:store-id", "value a byte", "status"), ("counters", "value flipped", "cancel --queue mail --yes"),
    ("rows", "type string", "run"), ("outbox", "type string", "move"),
]  # fmt: skip
"""What once ended a launch, or a command with a traceback."""


class Place:
    """An installation whose commands run here."""

    def __init__(self, server: Server, full: Sequence[tuple[Any, ...]]) -> None:
        self.wire, self._full = server.wire(), full
        self._to = ("--store", server.url, "--namespace", NAMESPACE)
        app = PollConsumer(store=server.url, namespace=NAMESPACE)
        self._pages = DashboardEndpoint(app, lambda _: Visitor("me", acts=True))

    def damage(self, key: Keyed, kind: str) -> bool:
        """Fill the store, and put garbage into a key. Returns whether there is such garbage for it. The host remembers
        nothing of what the store was before."""
        shutil.rmtree("STATE", ignore_errors=True)
        self.wire.all(self._full)
        return damage(self.wire, key, kind)

    def command(self, line: str) -> tuple[int, str]:
        out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = cli.main([*self._to, *line.split()])
            except Exception:
                return 1, err.getvalue() + traceback.format_exc()
        return code, err.getvalue()

    def printed(self, line: str) -> str:
        """The output of a command that succeeds."""
        out = io.TextIOWrapper(io.BytesIO())
        with redirect_stdout(out):
            assert cli.main([*self._to, *line.split()]) == 0
        out.seek(0)
        return out.read()

    def page(self, path: str) -> tuple[int, str]:
        path, _, query = path.partition("?")
        try:
            answer = self._pages.answer(WebRequest("GET", path, {}, lambda _: b"", query))
        except Exception:
            return 500, traceback.format_exc()
        return answer.status, answer.body.decode()

    def judge(self, act: str, key: Keyed, kind: str) -> None:
        """Do ``act``: nothing but an answer, or an error that names what is wrong."""
        if act in ("run", "move"):
            self._launch(act, key, kind)
            return
        code, said = self.page(act) if act.startswith("/") else self.command(act)
        about = f"{key.word}: {kind}: {act}: {code}: {said}"
        assert "Traceback" not in said, about
        if code in (78, 500):  # a key of a wrong type, or what has no end, which is named, or its queue
            assert kind.startswith("type") or key.word in ("{}:lease", "{}:closing"), about
            assert key.name.partition("}")[0] in said, about
        else:
            assert code in (
                (200, 404) if act.startswith("/") else (0, 1) if act.startswith("doctor") else (0, 65, 66)
            ), about

    def _launch(self, act: str, key: Keyed, kind: str) -> None:
        code, said = self.command("run --until-empty --timeout 10s" if act == "run" else "move --timeout 4s")
        about = f"{key.word}: {kind}: {act}: {code}: {said}"
        assert "Traceback" not in said, about
        assert said.count("warning: queue mail is skipped") <= 1, about
        if key.word.startswith("{}:") and code == 78:
            assert key.name.partition("}")[0] in said, about
            return
        assert code == 0, about
        row = self.wire.command("HGET", f"{{{NAMESPACE}:default}}:m", "of-another")
        assert act == "move" or (row or b"")[1:2] == b"c", about


@pytest.fixture(scope="module")
def full(valkey_process: Server) -> list[tuple[Any, ...]]:
    """The commands that fill the store."""
    wire = valkey_process.wire()
    fill(wire, NAMESPACE)
    found = dumped(wire)
    valkey_process.clear()
    return found


@pytest.fixture
def place(
    valkey: Server, full: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    for kind in ("DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    (tmp_path / "handlers_of_garbage.py").write_text(HANDLERS)
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    with launches_here(), registry.afresh():
        yield Place(valkey, full)
    sys.modules.pop("handlers_of_garbage", None)


@pytest.mark.parametrize(("word", "kind", "act"), FOUND)
def test_garbage_that_was_found_ends_nothing(place: Place, word: str, kind: str, act: str) -> None:
    (key,) = (key for key in KEYS if key.word == word)
    assert place.damage(key, kind)
    place.judge(act, key, kind)


@pytest.mark.matrix
@pytest.mark.parametrize("share", [0, *map(long, range(1, SHARES))])
@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.word)
def test_garbage_in_a_key_ends_nothing(place: Place, key: Keyed, share: int) -> None:
    at = KEYS.index(key)
    kinds = [kind for n, kind in enumerate(kinds_of_garbage()) if (n + at) % SHARES == share]
    turns = [islice(cycle(acts), at + share * 7, None) for acts in (READING, READING, READING, WRITING, PAGES)]
    for kind in kinds:
        acts = ["run", "move", *map(next, turns)]
        for act in acts:
            if not place.damage(key, kind):
                break
            place.judge(act, key, kind)


@pytest.mark.parametrize("act", [*READING, *WRITING, *PAGES])
def test_what_is_full_is_shown_and_changed(place: Place, act: str) -> None:
    """The acts above do something, without garbage."""
    place.damage(KEYS[0], "name a word")
    code, said = place.page(act) if act.startswith("/") else place.command(act)
    refused = ("status nowhere", "signal orphan go", "handler resume ok", "lease break --role consumer", "doctor")
    assert code in (0, 200) or act.startswith(refused), said


@pytest.mark.parametrize("word", ["records", "rows", "ready", "in_flight", "schedule", "batch_instants", "outbox"])
def test_a_key_that_breaks_while_a_launch_runs_takes_its_queue_alone(place: Place, word: str) -> None:
    (key,) = (key for key in KEYS if key.word == word)
    place.wire.command("FLUSHALL")
    for queue in (QUEUE, "default"):
        assert place.command(f"enqueue other --queue {queue} --id of-{queue}")[0] == 0
    payload = json.dumps({"key": key.name}, separators=(",", ":"))
    assert place.command(f"enqueue breaks {payload} --queue default --priority -1")[0] == 0
    code, said = place.command("run --until-empty --timeout 90s")
    assert (code, said.count("\n")) == (0, 1), said
    assert f"queue {QUEUE} is skipped: key of a wrong type: " in said
    row = place.wire.command("HGET", f"{{{NAMESPACE}:default}}:m", "of-default")
    assert row[1:2] == b"c", said


ODD: list[object] = [
    None, True, False, 0, 1, -1, 5, 1.5, -0.5, 1e308, float("nan"), float("inf"), 10**40, "", "a", "\0", "\ud800",
    "x" * 300, " a\n", [], [1], {}, {"a": {"b": []}},
]  # fmt: skip
"""Values that a field may have in JSON, most of them of another type."""
MESSAGE = packed(message("x", handler="ok")) | {"sequel": encoded(Continuation(batch=QUEUE))}
ENDED = {"as": "c", "ids": "b.0 b.1", "home": QUEUE, "added": 0}
NEW_BATCH = NewBatch(QUEUE, "new", {"ended": packed(callback("new", "ended"))})
OPENS = {name: getattr(NEW_BATCH, field) for name, field in BATCH_FIELDS.items()}
FIELDS = [
    *(("message", STORED_AS.get(field, field)) for field in NewMessage._fields),
    *(("ended", field) for field in ENDED),
    *(("opens", field) for field in OPENS),
    *(("sequel", field) for field in Continuation._fields),
]


def entry(what: str, field: str, value: object, name: str) -> bytes:
    """An entry of an outbox in which a field has this value."""
    if what in ("ended", "opens"):
        note = {**(ENDED if what == "ended" else OPENS), field: value}
        return json.dumps([dict.fromkeys(FIRST, "") | {what: note}]).encode()
    if what == "sequel":
        return json.dumps([MESSAGE | {"id": name, "sequel": json.dumps({field: value})}]).encode()
    return json.dumps([MESSAGE | {"id": name} | {field: value}]).encode()


def completed(place: Place, queue: str, message_id: str) -> bool:
    row = place.wire.command("HGET", f"{{{NAMESPACE}:{queue}}}:m", message_id)
    return (row or b"")[1:2] == b"c"


@pytest.mark.matrix
@pytest.mark.parametrize(("what", "field"), FIELDS)
@pytest.mark.parametrize("kept_in", ["outbox", "spool"])
def test_an_odd_value_in_a_field_is_quarantined_and_what_is_behind_it_is_handled(
    place: Place, what: str, field: str, kept_in: str
) -> None:
    place.wire.command("FLUSHALL")
    assert place.command("enqueue other --queue default --id of-another")[0] == 0
    entries = [entry(what, field, value, f"odd-{n}") for n, value in enumerate(ODD)]
    entries.append(json.dumps([MESSAGE | {"id": "behind", "sequel": ""}]).encode())
    if kept_in == "outbox":
        now = server_us(place.wire)
        numbered = [b"%d\n%b" % (now + n, each) for n, each in enumerate(entries)]
        place.wire.all([("RPUSH", f"{{{NAMESPACE}:{QUEUE}}}:o", *numbered), ("SADD", f"{{{NAMESPACE}}}:queues", QUEUE)])
    else:
        spool = Path("spool")
        spool.mkdir(mode=0o700)
        for n, each in enumerate(entries):
            (spool / f"{NAMESPACE}@{time.time_ns() // 1000 + n:016d}-{n:016x}").write_bytes(each)
    code, said = place.command("run --until-empty --timeout 90s")
    assert (code, "Traceback" in said) == (0, False), said
    assert completed(place, "default", "of-another"), said
    assert completed(place, QUEUE, "behind"), said
    assert place.command("list")[0] == 0
    shown = json.loads(place.printed("dead list --unreadable --json"))
    assert len(shown) >= (3 if what == "sequel" or field == "encoded" else 8), shown
    assert all((each["reason"] and QUEUE in each["place"]) or "spool" in each["place"] for each in shown)
    assert place.command("dead purge --unreadable")[0] == 2
    assert place.command("dead purge --unreadable --yes")[0] == 0
    assert json.loads(place.printed("dead list --unreadable --json")) == []
