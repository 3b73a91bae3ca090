"""Unique keys as producers give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pollconsumer.core.errors import BadData
from pollconsumer.core.messages.message import REPLACES, SCOPED_BY, UNTIL_START, check_handler, check_key, scoped_key

_NOT_WITH_REPLACE = {
    "id": "the key says which message is replaced: leave the id out",
    "then": "callbacks stay as they were: leave them out",
    "failed": "callbacks stay as they were: leave them out",
    "key_until": "it is until the start: leave that out",
}
"""Options that a message which replaces another cannot have, and why."""


def stored_key(handler: str, given: object, scope: object) -> str:
    """A unique key as it is stored. BadData if it or its scope is invalid."""
    key = check_key(given)
    if scope not in ("handler", "queue"):
        raise BadData("key_scope", repr(scope), "handler or queue")
    if SCOPED_BY in key:
        raise BadData("unique key", repr(key), "text without a zero character")
    return scoped_key(check_handler(handler), key) if key and scope == "handler" else key


def key_rule(given: Mapping[str, Any], delay: int | None, longest: int | None) -> str:
    """The key rule of options that are ``given``, with their ``in_`` and ``at_most`` in milliseconds. BadData for
    options that contradict each other."""
    until = given.get("key_until", "end")
    if until not in ("end", "start"):
        raise BadData("key_until", repr(until), "end or start")
    replace = given.get("replace", False)
    if not isinstance(replace, bool):
        raise BadData("replace", repr(replace), "true or false")
    if not replace:
        if longest is not None:
            raise BadData("at_most", given["at_most"], "give replace, too")
        return UNTIL_START if until == "start" else ""
    for name, why in _NOT_WITH_REPLACE.items():
        if name in given:
            raise BadData("replace", f"with {name}", why)
    if given.get("key_scope") == "queue":
        raise BadData(
            "replace", "with key_scope", "a message would get the payload of another handler: leave out key_scope"
        )
    if longest is not None and delay is not None and longest < delay:
        raise BadData("at_most", given["at_most"], "shorter than the delay: make it longer")
    return f"{REPLACES}{0 if longest is None else max(1, longest)}"
