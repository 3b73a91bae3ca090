"""A store, moved to another server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pollconsumer.moving.store_closer import StoreCloser
from pollconsumer.moving.store_export import Import, export
from tests.conftest import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pollconsumer.store.client.wire import Wire

Line = dict[str, Any]


def unexpected(held: list[str]) -> None:
    raise AssertionError(f"leases are held: {held}")


def exported(wire: Wire, id: str = "e1") -> list[Line]:  # noqa: A002
    """The lines, read again from their text, of a store that is closed then."""
    closing = StoreCloser(wire, NAMESPACE)
    note = closing.close(id, unexpected)
    return [json.loads(json.dumps(line)) for line in export(closing, note)]


def imported(wire: Wire, lines: Iterable[Line], *, restart: bool = False) -> None:
    header, *rest = lines
    importing = Import(StoreCloser(wire, NAMESPACE), lambda _: None)
    importing.begin(header, restart=restart)
    for line in rest:
        if "end" in line:
            importing.check(line["end"])
            importing.finish()
            return
        importing.take(line)
    raise AssertionError("cut off")
