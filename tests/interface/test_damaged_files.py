"""Files of ours that somebody has damaged: an export is refused in one line, what is kept is read anew."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pollconsumer.core.errors import WentBack
from pollconsumer.core.repeats import Streaks
from pollconsumer.interface import cli
from pollconsumer.runtime.children.command import Noted
from pollconsumer.runtime.store_opener import StoreMemo
from pollconsumer.runtime.system.own_files import OwnFiles
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.suitability import Rollback
from tests.conftest import NAMESPACE
from tests.store.acting import Launch, message
from tests.store.moving import exported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.store.servers import Server

    Damage = Callable[[bytes], bytes]

HUGE = 10**400
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 3),
        st.sampled_from([HUGE, -HUGE, 2**63, 2**64, 1e308, -0.0, 0.5]),
        st.sampled_from(["", "nan", "inf", "1_0", " 1", "0x1p3", "\ud800", "€", "\0", "queue 1", "stream", "later"]),
        st.text(max_size=5),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
"""Any JSON, of wrong types, numbers without end, and words that look like others."""


def of_lines(change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    return lambda text: b"".join(change(text.splitlines(keepends=True)))


@st.composite
def field_damage(draw: st.DrawFn) -> Damage:
    """A field of a line has another value, or there is one that this version does not know."""
    at, field, value = draw(st.integers(0, 1000)), draw(st.integers(0, 20)), draw(values)
    new = draw(st.booleans() | st.none())

    def change(lines: list[bytes]) -> list[bytes]:
        line = json.loads(lines[at % len(lines)])
        inner = line["end"] if "end" in line and field % 2 else line
        name = "later" if new else [*inner][field % len(inner)]
        if new is None:
            del inner[name]
        else:
            inner[name] = value
        return [*lines[: at % len(lines)], json.dumps(line).encode() + b"\n", *lines[at % len(lines) + 1 :]]

    return of_lines(change)


@st.composite
def element_damage(draw: st.DrawFn) -> Damage:
    """An element of a page is another, or there are ten thousand more."""
    at, place, value, more = draw(st.integers(0, 1000)), draw(st.integers(0, 9)), draw(values), draw(st.booleans())

    def change(lines: list[bytes]) -> list[bytes]:
        pages = [number for number, line in enumerate(lines) if b'"values"' in line]
        line = json.loads(lines[pages[at % len(pages)]])
        held = line["values"]
        held[place % len(held)] = value
        line["values"] = held * 5000 if more else held
        lines[pages[at % len(pages)]] = json.dumps(line).encode() + b"\n"
        return lines

    return of_lines(change)


def flipped(places: list[tuple[int, int]]) -> Damage:
    def change(text: bytes) -> bytes:
        bits = bytearray(text)
        for at, bit in places:
            bits[at % len(bits)] ^= 1 << bit
        return bytes(bits)

    return change


def again(at: int, to: int) -> Damage:
    """A line comes twice."""
    return of_lines(lambda lines: [*lines[: to % len(lines)], lines[at % len(lines)], *lines[to % len(lines) :]])


def without(at: int) -> Damage:
    return of_lines(lambda lines: lines[: at % len(lines)] + lines[at % len(lines) + 1 :])


numbers = st.integers(0, 100_000)
damages = st.one_of(
    field_damage(),
    element_damage(),
    numbers.map(lambda at: lambda text: text[: at % len(text)]),
    st.lists(st.tuples(numbers, st.integers(0, 7)), min_size=1, max_size=3).map(flipped),
    st.builds(again, numbers, numbers),
    numbers.map(without),
    st.binary(max_size=300).map(lambda other: lambda _: other),
    st.builds(
        lambda at, other: lambda text: text[: at % len(text)] + other + text[at % len(text) :],
        numbers,
        st.binary(max_size=9),
    ),
)


def invoked(*arguments: str) -> tuple[int, str]:
    """A command in this process: its code, and what it says."""
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        code = cli.main(arguments)
    return code, said.getvalue()


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with TemporaryDirectory() as directory:
        places = {f"XDG_{kind}_HOME": directory for kind in ("DATA", "STATE", "CACHE")}
        with mock.patch.dict("os.environ", places):
            yield Path(directory)


@pytest.fixture
def export(valkey: Server) -> bytes:
    """Of a store with a key of each type."""
    store = RedisStore(valkey.wire(), NAMESPACE)
    store.enqueue([message(f"m{n}", payload=b'{"a":"\xc3\xa9"}', queue="mail") for n in range(3)])
    store.enqueue([message("later", delay=3_600_000, queue="mail"), message("first", priority=1, queue="mail")])
    Launch(store).reserve()
    return b"".join(json.dumps(line).encode() + b"\n" for line in exported(store.wire))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=damages)
@example(damage=lambda _: b"[" * 100_000)
@example(damage=lambda _: b"\x1f\x8b\x08\x00")
@example(damage=lambda text: text.replace(b'"e1"', b'"e 1"'))
@example(damage=lambda text: text.replace(b'"e1"', b'["e1"]'))
@example(damage=lambda text: text.replace(b'"expires_in_ms": -1', b'"expires_in_ms": 1'))
def test_a_damaged_export_is_refused_with_its_line_and_nothing_of_it_is_served(
    export: bytes, valkey: Server, place: Path, damage: Damage
) -> None:
    wire, file = valkey.wire(), place / "export"
    wire.command("FLUSHALL")
    file.write_bytes(damage(export))
    to = ("--store", valkey.url, "--namespace", NAMESPACE)
    code, said = invoked(*to, "store", "import", str(file))
    assert code in (0, 65, 78), said
    assert said.startswith("pollconsumer: error: ") == bool(code), said
    assert said.count("\n") == bool(code)
    if code == 65:
        assert re.search(r"line \d+|its id|cut off|totals|not an export|another version", said), said
    if code and wire.command("DBSIZE"):
        assert invoked(*to, "list")[0] == 69
    file.write_bytes(export)
    if code:
        again_code, again_said = invoked(*to, "store", "import", "--restart", str(file))
        assert (again_code, again_said) == (0, ""), (code, said)


written = st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode())


@settings(max_examples=60, deadline=None)
@given(written)
def test_state_of_any_form_is_no_state_or_ours(content: bytes) -> None:
    with TemporaryDirectory() as directory:
        files = OwnFiles([Path(directory)])
        memo = StoreMemo(lambda: "redis://h", "n", files)
        memo.write("a")
        memo.write_watermarks("1 1")
        for file in Path(directory).rglob("*"):
            if file.is_file():
                file.write_bytes(content)
        known = memo.read()
        assert known is None or known.isascii()
        wire = Wire("redis://h", lambda: Budget(0))
        with suppress(WentBack):
            Rollback("n", memo, lambda _: None, refuse=False).look(wire, b"\xff" * 6, memo.read_watermarks())
        assert Noted.read(file) is None
        assert all(streak.launches > 0 for streak in Streaks.decode(content).known.values())
