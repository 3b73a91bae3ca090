"""Values that nobody means, of each kind of JSON and of none, for tests of whatever takes values from outside."""

from __future__ import annotations

from typing import Any

LONG = "x" * 100_000
WORDS: dict[str, str] = {
    "empty": "",
    "blank": " ",
    "control": "a\x1b[31m\x07\x7f",
    "line break": "a\npollconsumer: error: faked",
    "NUL": "a\0b",
    "lone surrogate": "a\udce9",
    "byte order mark": "\ufeffa",
    "not in normal form": "e\u0301",
    "direction": "a\u202eb",
    "beyond the basic plane": "\U0001f600",
    "long": LONG,
    "negative in text": "-1",
    "zero in text": "0",
    "nan in text": "nan",
    "infinite in text": "inf",
    "more than 64 bits in text": "99999999999999999999",
    "year 10000": "9999-12-31T23:59:59-12:00",
    "a URL": "https://user:pass@host/path",
    "an object in text": '{"a": 1}',
}
OTHERS: dict[str, Any] = {
    "true": True,
    "zero": 0,
    "negative": -1,
    "fraction": 1.5,
    "more than 64 bits": 10**20,
    "thousand digits": 10**1000,
    "NaN": float("nan"),
    "infinite": float("inf"),
    "list": ["a"],
    "list of lists": [[["a"]]],
    "object": {"a": 1},
    "object of objects": {"a": {"b": {}}},
}
ODD: dict[str, Any] = WORDS | OTHERS
