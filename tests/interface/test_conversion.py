"""What producers send arrives as what the handler's parameters are annotated with; what cannot says where it stands."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import typing
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, computed_field, field_validator
from typing_extensions import TypedDict

from pollconsumer import PollConsumer
from pollconsumer.core.errors import BadData
from pollconsumer.core.messages.payloads import decode_payload, encode_payload
from pollconsumer.interface.api.registry import _converting, _dumping
from pollconsumer.runtime.handling.arguments import MOST_CHARACTERS, Arguments, BadArguments
from tests.core.test_message import TEXT
from tests.inner import calls_of, registered
from tests.interface.results import RESULTS, Colour, Level, Line, Pair, Tree
from tests.leaving_out import long

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.messages.message import NewMessage
    from tests.site import Site


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


@dataclasses.dataclass
class Counted:
    items: tuple[str, ...]
    count: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.count = len(self.items)


class Address(TypedDict, total=False):
    street: str
    number: int


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: UUID
    lines: list[Line]
    colour: Colour = Colour.RED
    placed: date | None = Field(default=None, alias="placedOn")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def count(self) -> int:
        return len(self.lines)


ZONES = st.just(UTC) | st.integers(-23 * 60, 23 * 60).map(lambda m: timezone(timedelta(minutes=m)))
INSTANTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES) | st.datetimes()
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
LINES = st.builds(Line, what=TEXT, price=DECIMALS, when=st.none() | INSTANTS)
ORDERS = st.builds(
    lambda number, lines, colour, placed: Order(number=number, lines=lines, colour=colour, placedOn=placed),
    st.uuids(),
    st.lists(LINES, max_size=3),
    st.sampled_from(Colour),
    st.none() | st.dates(),
)
TREES = st.recursive(
    st.builds(Tree, name=TEXT),
    lambda inner: st.builds(Tree, name=TEXT, children=st.lists(inner, max_size=3)),
    max_leaves=5,
)


def everything(
    instant: datetime,
    day: date,
    hour: time,
    number: UUID,
    amount: Decimal,
    colour: Colour,
    size: Size,
    level: Level,
    line: Line,
    counted: Counted,
    pair: Pair,
    address: Address,
    order: Order,
    tree: Tree,
    many: list[int],
    by_number: dict[int, datetime],
    way: Literal["in", "out", 3],
    positive: Annotated[int, Field(gt=0)],
    either: UUID | int | None,
    span: timedelta,
    path: Path,
    raw: bytes,
    some: set[int],
    nested: list[frozenset[date]],
    entry: dict[int, tuple[timedelta, ...]],
    levels: list[Level],
    name: str,
    **rest: Decimal,
) -> None: ...


ARGUMENTS = st.fixed_dictionaries(
    {
        "instant": INSTANTS,
        "day": st.dates(),
        "hour": st.times(timezones=ZONES) | st.times(),
        "number": st.uuids(),
        "amount": DECIMALS,
        "colour": st.sampled_from(Colour),
        "size": st.sampled_from(Size),
        "level": st.sampled_from(Level),
        "line": LINES,
        "counted": st.builds(Counted, st.lists(TEXT, max_size=3).map(tuple)),
        "pair": st.builds(Pair, what=TEXT, number=st.integers()),
        "address": st.fixed_dictionaries({}, optional={"street": TEXT, "number": st.integers()}),
        "order": ORDERS,
        "tree": TREES,
        "many": st.lists(st.integers()),
        "by_number": st.dictionaries(st.integers(), INSTANTS, max_size=3),
        "way": st.sampled_from(["in", "out", 3]),
        "positive": st.integers(1),
        "either": st.uuids() | st.integers() | st.none(),
        "span": st.timedeltas(),
        "path": TEXT.map(Path),
        "raw": TEXT.map(str.encode),
        "some": st.sets(st.integers()),
        "nested": st.lists(st.frozensets(st.dates(), max_size=3), max_size=3),
        "entry": st.dictionaries(st.integers(), st.lists(st.timedeltas(), max_size=3).map(tuple), max_size=3),
        "levels": st.lists(st.sampled_from(Level), max_size=3),
        "name": TEXT,
    },
    optional={"more": DECIMALS, "model_config": DECIMALS, "self": DECIMALS},
)


def bound(function: Callable[..., Any], payload: dict[str, Any]) -> dict[str, Any]:
    return Arguments(function, _converting, _dumping).bind(payload)


def refusal(function: Callable[..., Any], **payload: Any) -> str:
    with pytest.raises(BadArguments) as caught:
        bound(function, payload)
    text = str(caught.value)
    assert len(text) <= MOST_CHARACTERS
    assert text.isprintable()
    return text.removeprefix("bad_arguments: ")


EVERYTHING = Arguments(everything, _converting, _dumping)


@given(ARGUMENTS)
def test_arguments_of_any_type_arrive_equal(sent: dict[str, Any]) -> None:
    arrived = EVERYTHING.bind(decode_payload(EVERYTHING.encoded((), sent)))
    assert arrived == sent
    arrived["path"] = type(sent["path"])(arrived["path"])
    assert {name: type(value) for name, value in arrived.items()} == {name: type(value) for name, value in sent.items()}


def test_what_is_enqueued_is_what_the_handler_is_called_with(
    app: PollConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[Any] = []
    sent: list[NewMessage] = []

    monkeypatch.setattr(calls_of(app), "enqueue_one", sent.append)

    @app.handler
    def ship(when: datetime, order: Order, urgent: bool = False) -> None:
        handled.append((when, order, urgent))

    when = datetime(2030, 1, 1, 12, tzinfo=UTC)
    order = Order(number=UUID(int=7), lines=[Line("a", Decimal("1.50"))], placedOn=date(2029, 1, 1))
    ship.enqueue(when, order=order)
    registered(ship).definition.run(decode_payload(sent[0].payload), None)
    assert handled == [(when, order, False)]


def instant(at: datetime) -> None: ...
def positive(n: Annotated[int, Field(gt=0)]) -> None: ...
def many(numbers: list[int], n: int = 0) -> None: ...
def order(order: Order) -> None: ...
def coloured(c: Colour, w: Literal["in", "out"] = "in") -> None: ...
def number(u: UUID) -> None: ...
def kept(kept: set[str]) -> None: ...


class Mixed(Enum):
    NUMBER = 1
    TEXT = "text"


@dataclasses.dataclass
class Dated:
    day: date


@dataclasses.dataclass
class Levels:
    level: Level
    below: list[Levels] = dataclasses.field(default_factory=list)


def exact(
    one: Literal[1, "in"] = 1,
    yes: Literal[True] = True,
    level: Level = Level.LOW,
    colour: Mixed = Mixed.NUMBER,
    levels: list[dict[str, Level]] = [],  # noqa: B006
    dated: list[Dated] = [],  # noqa: B006
    tree: Levels | None = None,
) -> None: ...


@pytest.mark.parametrize(
    ("function", "payload", "said"),
    [
        (instant, {"at": 1700000000}, "at: Input should be a valid datetime"),
        (instant, {"at": "tomorrow"}, "at: Input should be a valid datetime, "),
        (instant, {"at": None}, "at: Input should be a valid datetime"),
        (positive, {"n": 0}, "n: Input should be greater than 0"),
        (positive, {"n": "1"}, "n: Input should be a valid integer"),
        (positive, {"n": True}, "n: Input should be a valid integer"),
        (many, {"numbers": [1, "2", 3]}, "numbers[1]: Input should be a valid integer"),
        (many, {"numbers": "12"}, "numbers: Input should be a valid array"),
        (coloured, {"c": "blue", "w": "up"}, "c: Input should be 'red' or 7; w: Input should be 'in' or 'out'"),
        (
            order,
            {"order": {"lines": [{"what": 1, "price": "1"}]}},
            "order.number: Field required; order.lines[0].what: ",
        ),
        (order, {"order": {"number": str(UUID(int=1)), "lines": [], "x": 1}}, "order.x: Extra inputs"),
        (order, {"order": []}, "order: Input should be an object"),
        (instant, {"at": "1"}, "at: Input should be a valid datetime"),
        (instant, {"at": "-1700000000.5"}, "at: Input should be a valid datetime"),
        (exact, {"one": True}, "one: Input should be 1"),
        (exact, {"one": 1.0}, "one: Input should be 1"),
        (exact, {"yes": 1}, "yes: Input should be True"),
        (exact, {"level": True}, "level: Input should be 1 or 2"),
        (exact, {"colour": True}, "colour: Input should be 1 or 'text'"),
        (exact, {"levels": [{}, {"k": True}]}, "levels[1].k: Input should be 1 or 2"),
        (exact, {"dated": [{"day": "86400"}]}, "dated[0].day: Input should be a valid date"),
        (exact, {"tree": {"level": 1, "below": [{"level": True}]}}, "tree.below[0].level: Input should be 1 or 2"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(
    function: Callable[..., Any], payload: dict[str, Any], said: str
) -> None:
    assert refusal(function, **payload).startswith(said)


class Careless(BaseModel):
    secret: str

    @field_validator("secret")
    @classmethod
    def _check(cls, value: str) -> str:
        raise ValueError(f"{value} is wrong")


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


def careless(it: Careless) -> None: ...
def animal(it: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...


@pytest.mark.parametrize(
    ("function", "payload", "said"),
    [
        (careless, {"it": {"secret": "hunter2"}}, "it.secret: value_error"),
        (animal, {"it": {"kind": "hunter2"}}, "it: union_tag_invalid"),
        (number, {"u": "hunter2"}, "u: uuid_parsing"),
        (instant, {"at": "hunter2"}, None),
        (coloured, {"c": "hunter2"}, None),
    ],
)
def test_no_refusal_repeats_a_value(function: Callable[..., Any], payload: dict[str, Any], said: str | None) -> None:
    text = refusal(function, **payload)
    assert "hunter2" not in text
    assert said is None or text == said


def test_a_refusal_of_much_stays_short() -> None:
    assert refusal(many, numbers=["x"] * 1000).endswith("; and 1 more")
    refusal(order, order={"x" * 5000: 1, "\x1b[31m": 2})


def test_text_that_is_none_and_nesting_without_end_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    assert refusal(kept, kept=["\ud800"]) == "kept: nested too deeply, or no text"
    assert refusal(many, numbers=deep) == "numbers: nested too deeply, or no text"


def test_a_validator_that_breaks_is_a_failure_of_the_users_and_no_bad_arguments() -> None:
    class Broken(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def _check(cls, value: int) -> int:
            raise KeyError(value)

    def function(it: Any) -> None: ...

    function.__annotations__["it"] = Broken
    with pytest.raises(KeyError):
        bound(function, {"it": {"x": 1}})


def test_parameters_may_be_called_what_models_call_their_own() -> None:
    def function(
        self: date, model_config: date, model_fields: date, schema: date, copy: date, json: date, _private: date
    ) -> None: ...

    day = date(2024, 1, 1)
    names = list(function.__annotations__)[:-1]
    assert bound(function, dict.fromkeys(names, "2024-01-01")) == dict.fromkeys(names, day)


def test_defaults_are_the_functions_own() -> None:
    marker: Any = object()

    def function(at: datetime = marker, n: Annotated[int, Field(gt=0)] = -1) -> None: ...

    assert bound(function, {}) == {}


def test_what_no_payload_can_give_is_told_from_what_is_not_understood() -> None:
    class Connection: ...

    def function(connection, lots, odd, n: int) -> None: ...  # type: ignore[no-untyped-def]

    function.__annotations__ |= {"connection": Connection, "lots": list[Connection], "odd": 5}
    impossible, unchecked = Arguments(function, _converting).problems()
    assert impossible["connection"] == "no payload can give a Connection"
    assert impossible.keys() == {"connection", "lots"}
    assert unchecked.keys() == {"odd"}
    assert refusal(function, connection=1, lots=[], odd=1, n=1).startswith("connection: no payload can give a Conn")
    with pytest.raises(BadArguments, match="n is str"):
        bound(function, {"connection": 1, "lots": [], "odd": 1, "n": "1"})


class Unfinished(BaseModel):
    it: Nowhere  # type: ignore[name-defined]  # noqa: F821


def unfinished(it: Unfinished, n: int) -> None: ...


def test_a_model_that_names_what_is_not_there_is_not_checked() -> None:
    assert bound(unfinished, {"it": {"it": 1}, "n": 1}) == {"it": {"it": 1}, "n": 1}
    assert Arguments(unfinished, _converting).problems()[1].keys() == {"it"}


class Raw(BaseModel):
    blob: float


@pytest.mark.parametrize(
    ("payload", "kind", "said"),
    [
        ({"items": [1, 2, {"data": b"x"}]}, TypeError, "payload.items[2].data: a bytes has no JSON form"),
        ({"a": {1, 2}}, TypeError, "payload.a: a set has no JSON form"),
        ({"a": {"b c": object()}}, TypeError, "payload.a['b c']: a object has no JSON form"),
        ({"a": {(1, 2): 3}}, TypeError, "payload.a: names must be text, not tuple"),
        ({"a": (1, [float("nan")])}, BadData, "payload.a[1][0]: nan; NaN and Infinity are not JSON"),
        ({"a": Decimal("Infinity")}, BadData, "payload.a; NaN and Infinity are not JSON"),
        ({"a": {float("inf"): 1}}, TypeError, "payload.a: names must be text, not float; annotate the handler's"),
        ({"v": {1: "a", "1": "b"}}, TypeError, "payload.v: names must be text, not int"),
        ({"a": [{"b": ({None: 1},)}]}, TypeError, "payload.a[0].b[0]: names must be text, not NoneType"),
        ({"a": Line({True: 1}, Decimal(1))}, TypeError, "payload.a.what: names must be text, not bool"),  # type: ignore[arg-type]
        ({"a": ["\ud800"]}, BadData, "payload.a[0]; it holds a lone surrogate, which is no text"),
        ({"a": {"\ud800": 1}}, BadData, "payload.a; it holds a lone surrogate, which is no text"),
        ({"a": [10**5000]}, BadData, "payload.a[0]; the number has too many digits; send it as text"),
        ({"a": Line("x", b"x")}, TypeError, "payload.a.price: a bytes has no JSON form"),  # type: ignore[arg-type]
        ({"a": [Raw(blob=float("nan"))]}, BadData, "payload.a[0].blob: nan; NaN and Infinity are not JSON"),
        ({"a": Order}, TypeError, "payload.a: a ModelMetaclass has no JSON form"),
        ({"a": Line}, TypeError, "payload.a: a type has no JSON form"),
        ({"a": timedelta(1)}, TypeError, "payload.a: a timedelta has no JSON form"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
def test_what_cannot_be_said_in_json_is_refused_with_its_place(
    payload: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind) as caught:
        encode_payload(payload)
    assert str(caught.value).startswith(said)
    assert type(caught.value) is kind


@pytest.mark.parametrize("name", [0, -7, 10**30, 1.5, -0.0, 1e22, 1e-7, None, True, False])
@pytest.mark.parametrize("beside", [{}, {"line1": "0", "null": {}}, {"": '0":'}])
def test_a_name_within_that_is_no_text_is_refused_wherever_it_stands(name: object, beside: dict[str, object]) -> None:
    for inner in ({name: 1}, [{"a": 1, name: "x"}], [0, {name: {}, "z": "y"}]):
        with pytest.raises(TypeError, match=f"names must be text, not {type(name).__name__}"):
            encode_payload(beside | {"a": inner})
        named = json.loads(json.dumps(beside | {"a": inner}))
        assert json.loads(encode_payload(named)) == named


def test_what_holds_itself_is_refused_with_its_place() -> None:
    circle: dict[str, Any] = {"x": [1]}
    circle["x"].append(circle)
    with pytest.raises(BadData, match=r"^payload\.x\[1\]; it holds itself$"):
        encode_payload(circle)
    line = Line("a", Decimal(1))
    line.what = line  # type: ignore[assignment]
    with pytest.raises(BadData, match=r"^payload\.a\.what; it holds itself$"):
        encode_payload({"a": line})


def test_the_same_value_twice_is_no_circle() -> None:
    shared = [1]
    assert encode_payload({"a": shared, "b": [shared]}) == b'{"a":[1],"b":[[1]]}'


def test_other_containers_and_values_are_said_as_json_says_them() -> None:
    payload = {"d": OrderedDict(a=1), "t": (1, Pair("x", 2)), "e": [Size.SMALL, Level.HIGH, Colour.NUMBER]}
    assert encode_payload(payload) == b'{"d":{"a":1},"t":[1,["x",2]],"e":["small",2,7]}'


class Standard(typing.TypedDict):
    n: int


def standard(it: Standard) -> None: ...


@pytest.mark.skipif(sys.version_info < (3, 12), reason="pydantic understands that of typing_extensions only")
def test_a_typed_dict_of_the_standard_library_is_checked() -> None:
    assert refusal(standard, it={"n": "1"}).startswith("it.n: ")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic understands it")
def test_a_typed_dict_that_is_not_understood_is_not_checked_and_check_says_what_to_use() -> None:
    assert bound(standard, {"it": {"n": "1"}}) == {"it": {"n": "1"}}
    assert "typing_extensions.TypedDict" in Arguments(standard, _converting).problems()[1]["it"]


IMPORTS = "from __future__ import annotations\nfrom sqlite3 import Connection\nfrom pollconsumer import PollConsumer\n"
HANDLER = "@PollConsumer().handler\ndef store"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            "(n: int, to: Connection)",
            "store, parameter to: no payload can give a Connection; annotate a type that JSON has, or give a default",
        ),
        ("(n: int, /)", "parameter n of store; arguments come by name: leave out the /"),
    ],
)
def test_check_reports_a_handler_that_no_message_can_call(site: Site, parameters: str, said: str) -> None:
    (site.directory / "handlers.py").write_text(f"{IMPORTS}{HANDLER}{parameters}: ...\n")
    done = site.command("check")
    assert done.returncode == 78
    assert said in done.stderr.splitlines()[-1]
    assert done.stdout == ""


def test_check_names_the_parameters_that_are_not_checked(site: Site) -> None:
    (site.directory / "handlers.py").write_text(f"{IMPORTS}{HANDLER}(a: Later, n: int, to: Connection = None): ...\n")
    assert site.json("check")["arguments_not_checked"] == {"store.a": "NameError: name 'Later' is not defined"}
    assert "store.a: NameError: name 'Later' is not defined" in site.command("check").stdout


def test_a_launch_makes_dead_letters_of_what_does_not_fit_and_hands_over_the_rest(site: Site) -> None:
    (site.directory / "handlers.py").write_text(
        "from datetime import datetime\nfrom pathlib import Path\nfrom pollconsumer import PollConsumer\n"
        "@PollConsumer().handler\ndef at(when: datetime, n: int = 0) -> None:\n"
        "    Path('notes').write_text(f'{when.year} {n}')\n"
    )
    good = site.enqueue("at", when="2031-01-01T00:00:00Z", n=1)
    bad = site.enqueue("at", "--queue", "default", when="never")
    assert site.drain().returncode == 0
    assert site.notes() == ["2031 1"]
    assert site.state(good) == "completed"
    status = site.json("status", bad)
    assert (status["state"], status["attempts"]) == ("dead", 1)
    assert status["last_error"].startswith("bad_arguments: when: Input should be a valid datetime")


def test_what_has_no_form_of_its_own_is_written_by_the_annotation_or_refused_with_the_reason(app: PollConsumer) -> None:
    @app.handler
    def store(path: Path, some: set[int] = frozenset(), raw: bytes = b"", **spans: timedelta) -> None: ...  # type: ignore[assignment]

    sent: list[NewMessage] = []
    calls_of(app).enqueue_one = sent.append  # type: ignore[assignment,method-assign]
    store.enqueue(Path("/a"), {1}, late=timedelta(hours=1))
    assert decode_payload(sent[0].payload) == {"path": "/a", "some": [1], "late": "PT1H"}
    wrong: Any = store
    with pytest.raises(TypeError, match=r"^raw of .*store\(\) is bytes, which cannot be written as bytes$"):
        wrong.enqueue(Path("/a"), raw=b"\xff")
    with pytest.raises(TypeError, match=r"^some of .*store\(\) is set, which cannot be written as set"):
        wrong.enqueue(Path("/a"), {"text"})
    with pytest.raises(
        TypeError, match=r"^payload.x: a Path has no JSON form|^payload.x: a PosixPath has no JSON form"
    ):
        app.handler("any")(lambda x: x).enqueue(x=Path("/a"))


@pytest.mark.parametrize("concurrency", [1, long(3)])
def test_a_result_has_the_json_form_that_it_would_have_in_a_payload(site: Site, concurrency: int) -> None:
    (site.directory / "handlers.py").write_text(
        "from pollconsumer import PollConsumer\nfrom tests.interface.results import RESULTS\n"
        "app = PollConsumer()\n"
        "@app.handler\ndef plain(n: int): return RESULTS[n][0]\n"
        "@app.handler\nasync def asynchronous(n: int): return RESULTS[n][0]\n"
        "@app.handler(isolation='process')\ndef isolated(n: int): return RESULTS[n][0]\n"
        "@app.handler(isolation='process')\ndef odd(): return {'a': {1}}\n"
    )
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    (site.directory / "lines").write_text(
        "".join(
            json.dumps({"handler": handler, "payload": {"n": n}, "id": f"{handler}-{n}"}) + "\n"
            for handler in ("plain", "asynchronous", "isolated")
            for n in range(len(RESULTS))
        )
        + '{"handler": "odd", "id": "odd"}\n'
    )
    assert site.command("enqueue", "--ndjson", "lines", **environment).returncode == 0
    done = site.command("run", "--until-empty", "--concurrency", str(concurrency), **environment)
    assert done.returncode == 0
    kept = {message["id"]: message["result"] for message in site.json("list", "--state", "completed")}
    assert kept.pop("odd") is None
    assert "it is no JSON: result.a: a set has no JSON form; return what JSON has" in done.stderr
    assert kept == {
        f"{handler}-{n}": form
        for handler in ("plain", "asynchronous", "isolated")
        for n, (_, form) in enumerate(RESULTS)
    }


PEOPLE = """
import dataclasses
from typing import Any, NamedTuple
from pydantic import BaseModel, ConfigDict, Field, RootModel
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict
from pollconsumer import PollConsumer

PEOPLE = {"ann", "bob", "cid", "dora", "eve"}
TEAMS = frozenset({frozenset(PEOPLE), frozenset({"x", "y"}), frozenset()})
@dataclasses.dataclass
class Plain:
    tags: set[str]
    teams: list[frozenset[str]]
@dataclass
class Dated:
    tags: set[str] = Field(serialization_alias="labels")
class Model(BaseModel):
    model_config = ConfigDict(extra="allow", alias_generator=str.upper)
    tags: set[str]
    named: dict[str, frozenset[str]]
    inner: Plain | None = None
class Root(RootModel[set[str]]): ...
class Pair(NamedTuple):
    tags: set[str]
    number: int
class Typed(TypedDict):
    tags: set[str]
PLAIN = Plain(PEOPLE, [frozenset(PEOPLE)])
MODEL = Model(TAGS=PEOPLE, NAMED={"a": PEOPLE}, INNER=PLAIN, more=PEOPLE, deep={"x": [PEOPLE]})
HINTED = (
    (set[str], PEOPLE), (frozenset[frozenset[str]], TEAMS), (dict[str, list[set[str]]], {"a": [PEOPLE]}),
    (Plain, PLAIN), (Dated, Dated(PEOPLE)), (Model, MODEL), (Any, MODEL), (Root, Root(PEOPLE)), (Any, Root(PEOPLE)),
    (Any, [MODEL]),
    (Pair, Pair(PEOPLE, 1)), (Typed, {"tags": PEOPLE}), (set[str] | int, PEOPLE), (tuple[set[str], ...], (PEOPLE,)),
)
app = PollConsumer()
for number, (hint, value) in enumerate(HINTED):
    def function(value): ...
    function.__annotations__["value"] = hint
    handler = app.handler(f"h{number}")(function)
    print(handler.args(value=value).using(id="t").__message__()[2:4])
"""


def test_a_set_is_written_alike_in_every_process_wherever_it_stands() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", PEOPLE], capture_output=True, check=True, text=True, timeout=90,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(1, 4)
    }  # fmt: skip
    assert len(printed) == 1
    lines = printed.pop().splitlines()
    assert len(lines) == 14
    assert all('["ann","bob","cid","dora","eve"]' in line for line in lines)


def test_a_producer_imports_no_pydantic_for_what_has_a_form_of_its_own() -> None:
    program = (
        "import sys\nfrom datetime import datetime, timedelta\nfrom pollconsumer import PollConsumer\n"
        "from pollconsumer.interface.api.app import calls_of\n"
        "app, sent = PollConsumer(), []\ncalls_of(app).enqueue_one = sent.append\n"
        "@app.handler\ndef ship(when: datetime, many: list[int], span: timedelta = None): ...\n"
        "ship.enqueue(datetime.now(), [1, 2])\n"
        "print('pydantic' in sys.modules)\n"
        "ship.enqueue(datetime.now(), [1], timedelta(1))\n"
        "print('pydantic' in sys.modules, sent[1].payload)\n"
    )
    store = {"POLLCONSUMER_STORE": "redis://nowhere.invalid"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=store, check=True)
    assert done.stdout.splitlines()[0] == "False"
    assert done.stdout.splitlines()[1].startswith("True ")
    assert '"span":"P1D"' in done.stdout
