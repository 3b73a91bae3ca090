"""Text from outside is shown so that it can neither act on a terminal nor pass for something else."""

from __future__ import annotations

from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.errors import SHOWN_CHARACTERS, BadData, shown
from pollconsumer.core.notation.text import INDENT, counted, printable, printable_lines

UNSAFE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
anything = st.text(st.characters())


def is_harmless(text: str) -> bool:
    return all(category(c) not in UNSAFE and (c == " " or category(c) != "Zs") for c in text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a é 漢 ~", "a é 漢 ~"),
        ("\n\r\t\0\x1b[31m\x7f", "\\n\\r\\t\\x00\\x1b[31m\\x7f"),
        ("\x85\x9b", "\\x85\\x9b"),
        ("\u2028\u2029\u00a0\u3000", "\\u2028\\u2029\\xa0\\u3000"),
        ("\u202e\u2066\u200f", "\\u202e\\u2066\\u200f"),
        ("\u200b\u200d\ufeff\u00ad\U000e0041", "\\u200b\\u200d\\ufeff\\xad\\U000e0041"),
        ("\u034f\u115f\u3164\uffa0\u2800\ufe0f\U000e0100", "\\u034f\\u115f\\u3164\\uffa0\\u2800\\ufe0f\\U000e0100"),
        ("\ud800\udc80\ue000\uffff", "\\ud800\\udc80\\ue000\\uffff"),
    ],
)
def test_what_is_no_visible_character_is_escaped(text: str, expected: str) -> None:
    assert printable(text) == expected


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 launches, 0 keys"), (1, "1 launch, 1 key"), (2, "2 launches, 2 keys")]
)
def test_one_is_not_several(number: int, text: str) -> None:
    assert f"{counted(number, 'launch')}, {counted(number, 'key')}" == text


@given(anything)
def test_any_text_becomes_one_harmless_line_and_stays_that(text: str) -> None:
    once = printable(text)
    assert is_harmless(once)
    assert printable(once) == once


@given(st.text(st.characters(categories=("L", "N", "P", "S"), max_codepoint=0x24FF, exclude_characters="\u034f")))
def test_visible_text_is_left_as_it_is(text: str) -> None:
    assert "\\u" in text or printable(text).replace("\\u115f", "\u115f").replace("\\u1160", "\u1160") == text


@given(anything)
def test_lines_are_kept_escaped_and_indented(text: str) -> None:
    lines = printable_lines(text)
    assert len(lines) == text.rstrip("\n").count("\n") + 1
    assert all(is_harmless(line) and (not line or line.startswith(INDENT)) for line in lines)


@given(anything)
def test_a_value_in_a_message_is_escaped_and_cut(text: str) -> None:
    assert is_harmless(shown(text))
    assert len(shown(text)) <= SHOWN_CHARACTERS
    assert len(text) > 8 or shown(text) == printable(text)


def test_an_error_is_escaped_as_a_whole() -> None:
    assert str(BadData("line 1\n\x1b", "a\nb", "see /\u202e")) == "line 1\\n\\x1b: a\\nb; see /\\u202e"
