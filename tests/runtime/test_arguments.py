"""A payload becomes the arguments of a handler's function, or is refused by its signature."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from functools import partial, wraps
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.runtime.handling.arguments import MOST_CHARACTERS, Arguments, BadArguments, Mismatch, NoJsonForm
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.handling.handler import Handler, calling
from tests.core.test_message import PAYLOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    class Unseen: ...


def nothing_to_convert(hint: Any) -> Callable[[Any], Any]:
    raise AssertionError(f"{hint} takes no conversion")


def arguments(function: Callable[..., Any]) -> Arguments:
    return Arguments(function, nothing_to_convert)


def refusal(function: Callable[..., Any], payload: dict[str, Any]) -> str:
    with pytest.raises(BadArguments) as caught:
        arguments(function).bind(payload)
    return str(caught.value)


def plain(  # type: ignore[no-untyped-def]
    s: str = "",
    i: int = 0,
    f: float = 0.0,
    b: bool = False,
    d: dict[str, Any] = {},  # noqa: B006
    li: list[Any] = [],  # noqa: B006
    bare: dict = {},  # type: ignore[type-arg]  # noqa: B006
    n: None = None,
    u: int | None = None,
    o: Optional[str] = None,  # noqa: UP045
    w: Union[str, bool, None] = None,  # noqa: UP007
    a: Any = None,
    x: object = None,
    none=None,
) -> None: ...


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"s": "text", "i": 1, "f": 1.5, "b": True, "d": {"x": [1]}, "li": [1, "a"], "bare": {}, "n": None},
        {"f": 1, "u": None, "o": None, "w": None},
        {"u": 1, "o": "text", "w": True},
        {"a": [1], "x": {}, "none": 1.5},
        {"i": 10**40},
    ],
)
def test_what_json_has_is_compared_and_given_as_it_is(payload: dict[str, Any]) -> None:
    assert arguments(plain).bind(payload) == payload


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"s": 1}, "s is int, not str"),
        ({"i": "1"}, "i is str, not int"),
        ({"i": True}, "i is bool, not int"),
        ({"i": 1.0}, "i is float, not int"),
        ({"i": None}, "i is None, not int"),
        ({"f": True}, "f is bool, not float or int"),
        ({"b": 1}, "b is int, not bool"),
        ({"d": []}, "d is list, not dict"),
        ({"li": {}}, "li is dict, not list"),
        ({"n": 0}, "n is int, not None"),
        ({"u": True}, "u is bool, not int or None"),
        ({"w": 1}, "w is int, not str or bool or None"),
        ({"i": "1", "s": 1}, "i is str, not int; s is int, not str"),
    ],
)
def test_what_does_not_fit_is_named_with_its_type_and_not_with_its_value(payload: dict[str, Any], said: str) -> None:
    assert refusal(plain, payload) == f"bad_arguments: {said}"


def keywords(a: int, *, b: str, c: str = "c") -> None: ...
def anything(a: int, **others: Any) -> None: ...
def numbers(a: str, **others: int) -> None: ...
def several(*many: int, a: int) -> None: ...
def optional_by_position(a: int = 1, /, b: int = 2) -> None: ...


@pytest.mark.parametrize(
    ("function", "fits", "refused", "said"),
    [
        (keywords, {"a": 1, "b": "b"}, {"a": 1}, "missing b"),
        (keywords, {"a": 1, "b": "b", "c": "d"}, {"c": "d"}, "missing a, b"),
        (keywords, {"a": 1, "b": "b"}, {"a": 1, "b": "b", "d": 1, "e": 2}, "unexpected d, e"),
        (keywords, {"a": 1, "b": "b"}, {"a": "", "x": 1}, "missing b; unexpected x; a is str, not int"),
        (anything, {"a": 1, "b": [], "self": 2}, {"b": 2}, "missing a"),
        (numbers, {"a": "a", "b": 2}, {"a": "a", "b": "2"}, "b is str, not int"),
        (numbers, {"a": "a"}, {"a": 1}, "a is int, not str"),
        (several, {"a": 1}, {"a": 1, "many": [1]}, "unexpected many"),
        (optional_by_position, {"b": 3}, {"a": 1}, "unexpected a"),
        (lambda: None, {}, {"a": 1}, "unexpected a"),
    ],
)
def test_names_are_held_against_the_signature(
    function: Callable[..., Any], fits: dict[str, Any], refused: dict[str, Any], said: str
) -> None:
    function(**arguments(function).bind(fits))
    assert refusal(function, refused) == f"bad_arguments: {said}"


@given(PAYLOADS)
def test_any_payload_is_an_argument_list_or_bad_arguments(payload: dict[str, Any]) -> None:
    def function(x: int = 0, y: str | None = None, **rest: dict[str, Any] | list[Any] | float) -> dict[str, Any]:
        return {"x": x, "y": y, **rest}

    try:
        bound = arguments(function).bind(payload)
    except BadArguments:
        text = refusal(function, payload)
        assert text.isprintable()
        assert len(text) <= MOST_CHARACTERS
    else:
        assert function(**bound) == {"x": 0, "y": None, **payload}


def test_a_refusal_stays_short_whatever_was_sent() -> None:
    assert refusal(plain, {f"{n}": n for n in range(1000)}) == "bad_arguments: unexpected 0, 1, 2, 3, 4, and 995 more"
    endless = refusal(anything, {"a": "", **{"\x1b[31m" * 1000 + f"{n}": 1 for n in range(9)}})
    assert endless == "bad_arguments: a is str, not int"
    assert len(refusal(plain, {"\n" * 9999 + f"{n}": n for n in range(9)})) <= MOST_CHARACTERS
    assert refusal(plain, {"\n": 1}).isprintable()
    assert refusal(numbers, {"a": "", **{f"x{n}": "" for n in range(9)}}).endswith("; and 4 more")


class Instance:
    def __call__(self, n: int) -> int:
        return n

    def method(self, n: int) -> int:
        return n

    @classmethod
    def of_class(cls, n: int) -> int:
        return n

    @staticmethod
    def static(n: int) -> int:
        return n


def wrapped(n: int) -> int:
    return n


@wraps(wrapped)
def wrapper(*args: Any, **kwargs: Any) -> int:
    return wrapped(*args, **kwargs)


def two(n: int, m: str) -> int:
    return n * len(m)


class Made:
    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return self.n == other

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "function",
    [
        wrapped,
        wrapper,
        partial(two, m="m"),
        partial(partial(two), m="m"),
        Instance(),
        Instance().method,
        Instance.of_class,
        Instance.static,
        partial(Instance().method),
        wraps(wrapper)(partial(wrapper)),
        Made,
    ],
    ids=lambda function: getattr(function, "__qualname__", type(function).__name__),
)
def test_whatever_can_be_called_is_read_where_it_was_written(function: Callable[..., Any]) -> None:
    assert function(**arguments(function).bind({"n": 7})) == 7
    assert refusal(function, {"n": "7"}) == "bad_arguments: n is str, not int"


def unseen(a: Unseen, day: date, n: int, odd: "an address, of whatever kind") -> None: ...  # type: ignore[valid-type]  # noqa: F722


def test_an_annotation_that_only_a_type_checker_can_see_costs_no_other_its_check() -> None:
    payload = {"a": [1], "day": "2024-01-01", "n": 1, "odd": None}
    assert arguments(unseen).bind(payload) == payload
    assert refusal(unseen, {**payload, "n": "1"}) == "bad_arguments: n is str, not int"
    impossible, unchecked = arguments(unseen).problems()
    assert impossible == {}
    assert unchecked.keys() == {"a", "day", "odd"}
    assert unchecked["a"] == "NameError: name 'Unseen' is not defined"


def test_annotations_may_name_what_is_defined_after_the_handler_is_registered() -> None:
    source = "from __future__ import annotations\ndef function(n: Later): ...\n"
    place: dict[str, Any] = {}
    exec(source, place)
    early = Arguments(place["function"], nothing_to_convert)
    place["Later"] = int
    assert early.bind({"n": 1}) == {"n": 1}
    with pytest.raises(BadArguments, match="n is str"):
        early.bind({"n": "1"})


@pytest.mark.parametrize("annotation", [5, [1], {"a": 1}, "", "1 +", Annotated[int, []], object()])
def test_no_annotation_whatever_it_is_makes_a_message_crash(annotation: object) -> None:
    def function(it, n: int): ...  # type: ignore[no-untyped-def]

    def unknown(hint: Any) -> Callable[[Any], Any]:
        raise TypeError(repr(hint))

    function.__annotations__["it"] = annotation
    assert Arguments(function, unknown).bind({"it": "x", "n": 1}) == {"it": "x", "n": 1}


def test_what_is_converted_is_given_converted_and_every_mismatch_is_told() -> None:
    def function(a: set[int], b: complex = 1j, n: int = 0, **rest: bytes) -> None: ...

    def conversion(hint: Any) -> Callable[[Any], Any]:
        def convert(value: Any) -> Any:
            if value == "bad":
                raise Mismatch([".x: is bad", "[1]: too"])
            return (hint, value)

        return convert

    made = Arguments(function, conversion)
    assert made.bind({"a": [1], "n": 1, "c": "c"}) == {"a": (set[int], [1]), "n": 1, "c": (bytes, "c")}
    with pytest.raises(BadArguments, match=r"^bad_arguments: a\.x: is bad; a\[1\]: too; c\.x: is bad; c\[1\]: too$"):
        made.bind({"a": "bad", "c": "bad"})


def test_a_payload_is_not_changed_by_converting_it() -> None:
    def function(occurrence: datetime, n: int) -> None: ...

    payload = {"occurrence": "2024-01-01T00:00:00+00:00", "n": 1}
    assert arguments(function).bind(payload)["occurrence"] == datetime(2024, 1, 1, tzinfo=UTC)
    assert payload["occurrence"] == "2024-01-01T00:00:00+00:00"


def test_what_no_payload_can_give_is_refused_when_given_and_reported_when_required() -> None:
    def function(a: Instance, b: Instance | None = None) -> None: ...

    def conversion(_: Any) -> Callable[[Any], Any]:
        raise NoJsonForm("no payload can give an Instance")

    made = Arguments(function, conversion)
    assert made.problems() == ({"a": "no payload can give an Instance"}, {})
    with pytest.raises(BadArguments, match=r"^bad_arguments: a: no payload can give an Instance$"):
        made.bind({"a": 1})


def contextual(n: int, context: Context) -> None: ...
def unresolved_context(context: nowhere.Context | None, n: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def textual(context: str, occurrence: str, **rest: int) -> None: ...
def untyped(occurrence): ...  # type: ignore[no-untyped-def]
def open_context(context: Context, **rest: Any) -> None: ...
def on_time(occurrence: datetime | None = None) -> None: ...
def unresolved_time(occurrence: elsewhere.datetime) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "takes_context", "takes_occurrence"),
    [
        (contextual, True, False),
        (unresolved_context, True, False),
        (open_context, True, False),
        (textual, False, False),
        (untyped, False, False),
        (on_time, False, True),
        (unresolved_time, False, True),
    ],
)
def test_context_and_occurrence_are_special_by_their_annotation(
    function: Callable[..., Any], takes_context: bool, takes_occurrence: bool
) -> None:
    made = arguments(function)
    assert (made.takes_context, made.takes_occurrence) == (takes_context, takes_occurrence)


def test_a_context_comes_from_the_launch_and_from_no_payload() -> None:
    seen = []
    run = calling(lambda **given: seen.append(given), arguments(contextual))
    context: Any = object()
    run({"n": 1}, context)
    assert seen == [{"n": 1, "context": context}]
    assert refusal(contextual, {"n": 1, "context": {}}) == "bad_arguments: unexpected context"
    assert refusal(open_context, {"n": 1, "context": {}}) == "bad_arguments: unexpected context"


def test_another_context_is_a_parameter_like_any_other() -> None:
    assert arguments(textual).bind({"context": "c", "occurrence": "o", "x": 1}) == {
        "context": "c",
        "occurrence": "o",
        "x": 1,
    }
    assert refusal(textual, {"context": 1, "occurrence": "o"}) == "bad_arguments: context is int, not str"


@pytest.mark.parametrize("value", ["soon", 5, [], {}, True, ""])
def test_an_occurrence_that_is_no_instant_is_refused(value: Any) -> None:
    assert refusal(on_time, {"occurrence": value}) == "bad_arguments: occurrence: not an instant of ISO 8601"
    assert arguments(on_time).bind({"occurrence": None}) == {"occurrence": None}


def test_an_occurrence_is_read_without_importing_what_other_types_need() -> None:
    program = (
        "import sys\nfrom datetime import datetime\nfrom pollconsumer import PollConsumer\n"
        "from pollconsumer.interface.api.app import calls_of\n"
        "app = PollConsumer()\nhandlers = calls_of(app).handlers\n"
        "@app.handler\n"
        "def tick(n: int, names: dict[str, object], occurrence: datetime, many: list = ()):\n    pass\n"
        "@app.handler\ndef day(at: datetime): ...\n"
        "handlers['tick'].definition.run({'n': 1, 'names': {}, 'occurrence': '2024-01-01T00:00Z'}, None)\n"
        "print('pydantic' in sys.modules)\n"
        "handlers['day'].definition.run({'at': '2024-01-01T00:00Z'}, None)\n"
        "print('pydantic' in sys.modules)\n"
    )
    store = {"POLLCONSUMER_STORE": "redis://nowhere.invalid"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=store, check=True)
    assert done.stdout.split() == ["False", "True"]


def by_position(a: int, /) -> None: ...
def context_by_position(context: Context, /) -> None: ...
def misnamed(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (by_position, r"^parameter a of by_position; arguments come by name: leave out the /$"),
        (context_by_position, "parameter context"),
        (misnamed, "name it context"),
        (len, "leave out the /"),
        (dict.fromkeys, "leave out the /"),
        (dict, "parameters of dict: .*; wrap it in a function"),
    ],
)
def test_a_function_that_no_payload_can_call_is_no_handler(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        arguments(function)


def test_bad_arguments_are_fatal_and_a_type_error_of_the_handlers_own_is_a_failure_like_any() -> None:
    def clumsy(n: int) -> None:
        wrapped(n, n)  # type: ignore[call-arg]

    handler = Handler("clumsy", calling(clumsy, arguments(clumsy)))
    assert type(handler.handle({"n": 1}).error) is TypeError
    assert type(handler.handle({"m": 1}).error) is BadArguments


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "payload"),
    [
        (keywords, (1,), {"b": "b"}, {"a": 1, "b": "b"}),
        (keywords, (), {"a": 1, "b": "b"}, {"a": 1, "b": "b"}),
        (anything, (1,), {"x": 1, "y": 2}, {"a": 1, "x": 1, "y": 2}),
        (contextual, (1,), {}, {"n": 1}),
        (contextual, (), {"n": 1}, {"n": 1}),
        (optional_by_position, (), {"b": 1}, {"b": 1}),
        (plain, (), {"li": (1, 2), "f": 1}, {"li": (1, 2), "f": 1}),
        (plain, (), {"o": datetime(2024, 1, 1, tzinfo=UTC)}, {"o": datetime(2024, 1, 1, tzinfo=UTC)}),
        (plain, (), {"s": b"refused where it is encoded"}, {"s": b"refused where it is encoded"}),
    ],
)
def test_a_call_is_a_payload(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], payload: dict[str, Any]
) -> None:
    assert arguments(function).for_call(args, kwargs) == payload


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "said"),
    [
        (keywords, (), {"a": 1}, r"^arguments of keywords\(\): missing b$"),
        (keywords, (), {"a": 1, "bb": "b"}, r"^arguments of keywords\(\): missing b; unexpected bb; "),
        (keywords, (1, 2), {}, "too many positional"),
        (keywords, (1,), {"b": "b", "d": 1}, "unexpected keyword argument 'd'"),
        (keywords, (1,), {"a": 1, "b": "b"}, "multiple values"),
        (keywords, (), {"a": "1", "b": "b"}, r"^a of keywords\(\) is str, not int$"),
        (keywords, (True,), {"b": "b"}, r"^a of keywords\(\) is bool, not int$"),
        (plain, (), {"f": datetime(2024, 1, 1, tzinfo=UTC)}, "f of .* is datetime, not float or int"),
        (numbers, (), {"a": "", "x": ""}, "x of .* is str, not int"),
        (several, (1, 2), {"a": 1}, "many of .* must be passed by name"),
        (optional_by_position, (1,), {}, "a of .* must be passed by name"),
        (contextual, (), {"n": 1, "context": 1}, "context of contextual"),
        (open_context, (), {"context": 1}, "context of open_context"),
    ],
)
def test_a_call_that_the_handler_would_refuse_is_a_type_error(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        arguments(function).for_call(args, kwargs)


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers() | st.text() | st.none()))
def test_a_call_is_refused_exactly_where_the_handler_would_refuse_its_payload(payload: dict[str, Any]) -> None:
    made = arguments(keywords)
    try:
        made.for_call((), payload)
    except TypeError:
        with pytest.raises(BadArguments):
            made.bind(payload)
    else:
        assert made.bind(payload) == payload


def pair(a: int, b: str = "b") -> None: ...
def context_first(context: Context, a: int, b: int = 2) -> None: ...
def then_any(a: int, *rest: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (pair, ["a", "b"]),
        (context_first, ["a", "b"]),
        (contextual, ["n"]),
        (keywords, ["a"]),
        (anything, ["a"]),
        (then_any, ["a"]),
        (several, []),
        (optional_by_position, []),
        (lambda: None, []),
    ],
)
def test_a_call_by_position_is_the_call_by_name(function: Callable[..., Any], names: list[str]) -> None:
    def payload(args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[str, Any]] | None:
        try:
            return [*arguments(function).for_call(tuple(args), kwargs).items()]
        except TypeError:
            return None

    for count in range(4):
        for args in product([1, True, "b", None], repeat=count):
            by_name = payload((), dict(zip(names, args, strict=False)))
            assert payload(args, {}) == (by_name if count <= len(names) else None)


class Thrown(Exception):
    pass


@pytest.mark.parametrize("look", ["conversion", "annotation"])
def test_what_is_thrown_into_the_first_look_at_a_handler_leaves_each_parameter_checked(
    look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dated(at: datetime) -> None: ...

    thrown = [Thrown()]

    def throwing(called: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(hint: Any) -> Any:
            if thrown:
                raise thrown.pop()
            return called(hint)

        return call

    def converting(_: Any) -> Callable[[Any], Any]:
        def refuse(_: Any) -> Any:
            raise Mismatch([": no instant"])

        return refuse

    taken = Arguments(dated, throwing(converting) if look == "conversion" else converting)
    if look == "annotation":
        annotations = vars(taken)["_annotations"]
        monkeypatch.setattr(annotations, "resolve", throwing(annotations.resolve))
    with pytest.raises(Thrown):
        taken.bind({"at": "7"})
    with pytest.raises(BadArguments):
        taken.bind({"at": "7"})
