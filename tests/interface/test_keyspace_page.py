"""The page on the keyspace has a record's parts as producers write them, and every key of the namespace."""

from __future__ import annotations

from typing import Any

import pytest

from pollconsumer.core.messages.message import NewMessage
from pollconsumer.store.records.rows import new_record
from tests.interface.keyspace_page import CONTROL_KEYS, RECORD_FLAGS, constants_of_records, control_words

PARTS: dict[str, tuple[dict[str, Any], bytes]] = {
    "UNIQUE_KEY": ({"key": "k"}, b"\1k"),
    "CONCURRENCY_KEY": ({"concurrency_key": "c", "concurrency_limit": 5}, b"\5\1c"),
    "RATE": ({"rate_key": "r", "rate": "60/1s"}, b"\0\x3c\0\0\0\0\3\xe8\1r"),
    "DIGEST": ({"digest": "07" * 8}, b"\7" * 8),
    "EXPIRY": ({"lifetime": 9}, b"\0\0\0\0\0\x09"),
    "OPTIONS": ({"retry": "gentle"}, b'\0\x12{"retry":"gentle"}'),
}
"""What a message is given, and what its record has of it."""


def record(given: dict[str, Any]) -> bytes:
    return new_record(NewMessage("1", "mail", "send", b"{}", **given))


@pytest.mark.parametrize("flag", PARTS)
def test_a_record_has_the_flag_of_what_it_holds(flag: str) -> None:
    assert record(PARTS[flag][0])[1] == constants_of_records()[flag]


def test_a_record_has_its_parts_in_the_order_of_the_page() -> None:
    given = {name: value for options, _ in PARTS.values() for name, value in options.items()}
    parts = b"".join(PARTS[flag][1] for flag in RECORD_FLAGS)
    assert record(given)[4:] == parts + b"send\n{}"


def test_every_key_of_the_namespace_has_its_words() -> None:
    assert {*control_words()} == {*CONTROL_KEYS}
