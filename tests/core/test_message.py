"""What may be a message, and what is refused, whoever wrote it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.errors import BadData, PayloadTooLarge
from pollconsumer.core.messages.message import check_handler, check_id, check_key, check_priority, check_queue
from pollconsumer.core.messages.payloads import (
    MAX_PAYLOAD_BYTES,
    Malformed,
    decode_payload,
    encode_payload,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
PAYLOADS = st.dictionaries(TEXT, VALUES, max_size=5)


@given(PAYLOADS)
def test_a_payload_comes_back_as_it_was(payload: dict[str, Any]) -> None:
    assert decode_payload(encode_payload(payload)) == payload


@given(PAYLOADS)
def test_a_payload_is_encoded_as_by_the_encoder_that_looks_for_circles(payload: dict[str, Any]) -> None:
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    assert encode_payload(payload) == encoder.encode(payload).encode()


@given(PAYLOADS)
def test_what_is_stored_is_json_that_anybody_can_read(payload: dict[str, Any]) -> None:
    assert json.loads(encode_payload(payload).decode("utf-8")) == payload


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), [1, {"x": float("nan")}]])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(BadData):
        encode_payload({"x": value})


@pytest.mark.parametrize("payload", [{"x": "\ud800"}, {"\udfff": 1}, {"x": [{"y": "a\udc80b"}]}])
def test_a_lone_surrogate_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(BadData):
        encode_payload(payload)


@pytest.mark.parametrize("payload", [[], [1], "text", b"{}", None, 1, {1: 2}, {None: 1}, {True: 1}])
def test_a_payload_that_is_no_object_is_a_type_error(payload: Any) -> None:
    with pytest.raises(TypeError):
        encode_payload(payload)


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), 1j])
def test_a_value_that_json_cannot_say_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError):
        encode_payload({"x": value})


def test_a_payload_that_holds_itself_or_is_too_deep_is_refused() -> None:
    circle: dict[str, Any] = {}
    circle["x"] = circle
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"x": deep}
    for payload in (circle, deep):
        with pytest.raises(BadData):
            encode_payload(payload)
    while deep:  # taken apart by hand: releasing it whole is as deep as making it
        deep = deep["x"]


def test_a_payload_may_have_a_mebibyte_and_not_a_byte_more() -> None:
    frame = len(encode_payload({"x": ""}))
    assert len(encode_payload({"x": "a" * (MAX_PAYLOAD_BYTES - frame)})) == MAX_PAYLOAD_BYTES
    with pytest.raises(PayloadTooLarge):
        encode_payload({"x": "a" * (MAX_PAYLOAD_BYTES - frame + 1)})
    with pytest.raises(PayloadTooLarge):
        encode_payload({"x": "é" * (MAX_PAYLOAD_BYTES // 2)})


@pytest.mark.parametrize(
    "stored",
    [
        b"{bad",
        b"",
        b"{",
        b"\xff\xfe",
        b'{"x":"\xff"}',
        b'{"x":NaN}',
        b'{"x":[Infinity]}',
        b'{"x":-Infinity}',
        b'{"x":1e999}',
        b'{"x":[-1e999]}',
        b'{"x":' + b"9" * 5000 + b"}",
        b"[]",
        b'[{"x":1}]',
        b'"text"',
        b"1",
        b"null",
        b'{"x":' * 100_000,
        b'{"x":1} {"y":2}',
    ],
    ids=lambda stored: ascii(stored[:16]),
)
def test_a_stored_payload_that_is_no_object_of_json_is_malformed(stored: bytes) -> None:
    with pytest.raises(Malformed, match=r"^malformed: "):
        decode_payload(stored)


@given(st.binary() | TEXT.map(str.encode))
def test_any_stored_bytes_are_an_object_or_malformed(stored: bytes) -> None:
    try:
        value = decode_payload(stored)
    except Malformed:
        return
    assert type(value) is dict


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (check_queue, ["default", "a.b-c_d", "Q" * 64], ["", " ", "a b", "a/b", "{x}", "Q" * 65, "é", "a\n", 1, None]),
        (check_id, ["a", "2024-01-01@10:00+1", "x" * 128], ["", "a/b", "x" * 129, "x" * 10_000, "a b", "a\n", b"a", 7]),
        (check_handler, ["mail.send", "os.system", "é" * 200], ["", "a b", "a\tb", "a\n", "a\x00", "h" * 201, 3, None]),
        # C1 controls, what changes the direction of text, other white space, a lone surrogate
        (
            check_handler,
            ["\u05d0", "日本"],
            ["a\x85", "a\x9b31m", "a\u202eb", "a\u2066", "a\xa0b", "a\u3000", "a\udc80"],
        ),
        (check_key, ["", "a b/é", "k" * 255], ["k" * 256, "é" * 128, 5, None]),
        (check_priority, [0, 4096, -4096], [4097, -4097, 1.0, "1", True, None]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_name_is_returned_or_refused(
    check: Callable[[object], object], good: list[object], bad: list[object]
) -> None:
    assert [check(value) for value in good] == good
    for value in bad:
        with pytest.raises(BadData):
            check(value)


def test_a_refused_value_is_shown_on_one_line_and_cut() -> None:
    with pytest.raises(BadData) as caught:
        check_id("\x1b[31m\n" + "x" * 500)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250
