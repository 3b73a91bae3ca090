"""What handlers of a test return, and its JSON form: a module that its launches import, which needs no pytest."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import NamedTuple
from uuid import UUID

from pydantic import BaseModel


class Colour(Enum):
    RED = "red"
    NUMBER = 7


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Line:
    what: str
    price: Decimal
    when: datetime | None = None


class Pair(NamedTuple):
    what: str
    number: int


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


RESULTS = [
    (datetime(2030, 1, 1, tzinfo=UTC), "2030-01-01T00:00:00+00:00"),
    (date(2030, 1, 1), "2030-01-01"),
    (UUID(int=7), str(UUID(int=7))),
    ([Decimal("1.50")], ["1.50"]),
    (Line("x", Decimal(1)), {"what": "x", "price": "1", "when": None}),
    ({"level": Level.HIGH, "colour": Colour.RED}, {"level": 2, "colour": "red"}),
    (Tree(name="a"), {"name": "a", "children": []}),
    (Pair("a", 1), ["a", 1]),
    ({404: 3}, {"404": 3}),
]
