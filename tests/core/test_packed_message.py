"""Messages as JSON objects, read as somebody else may have written them."""

from __future__ import annotations

import pytest

from pollconsumer.core.messages.continuation import FIELDS, UNPACKABLE, packed, sound, unpacked
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.payloads import Malformed
from tests.store.acting import message

DEFAULTS = NewMessage._field_defaults
WHOLE = {name: DEFAULTS[field] for name, field in FIELDS.items() if field in DEFAULTS} | packed(message("id"))
TEXTS = [name for name, value in WHOLE.items() if isinstance(value, str)]
NUMBERS = [name for name, value in WHOLE.items() if isinstance(value, int) and not isinstance(value, bool)]


def test_a_whole_message_is_read() -> None:
    assert unpacked(dict(WHOLE)) == message("id")


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", [None, 7, True, 1.5, [], ["a"], {}], ids=repr)
def test_a_text_that_is_none_is_refused(field: str, value: object) -> None:
    with pytest.raises(UNPACKABLE):
        unpacked(WHOLE | {field: value})


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", [True, False, "7", [], {}], ids=repr)
def test_a_number_that_is_none_is_refused(field: str, value: object) -> None:
    with pytest.raises(UNPACKABLE):
        unpacked(WHOLE | {field: value})


@pytest.mark.parametrize("continuation", ["{", "7", "[]", '{"batch": 7}', '{"links": {}}', '{"then": {"id": 7}}'])
def test_a_message_whose_sequel_is_none_is_refused(continuation: str) -> None:
    assert sound(packed(message("id"))) == message("id")
    with pytest.raises(Malformed):
        sound(packed(message("id")) | {"sequel": continuation})
