"""What a message has besides its checkpoint: recorded steps, progress, and signals sent to it."""

import json
from collections.abc import Sequence
from datetime import datetime
from sys import float_info
from typing import Any, NamedTuple, Self

from pollconsumer.core.errors import BadData
from pollconsumer.core.json_values import explain
from pollconsumer.core.messages.payloads import quick
from pollconsumer.core.notation.instants import EPOCH

MOST_STEPS = 1000
MOST_BYTES = 1024**2
"""Maximum size of a message's steps, and of its signals, in bytes of JSON."""
MOST_RESULT_BYTES = 64 * 1024
"""Maximum size of one step's result, and of one signal's value, in bytes of JSON."""
MOST_NAME = 100


class Step(NamedTuple):
    """A recorded step. ``at``: when it was recorded. ``until``: for a sleep or a wait, when that ends; None for a step
    with a result. Both are in epoch ms of the server's clock."""

    name: str
    at: int
    result: Any = None
    until: int | None = None


class Signal(NamedTuple):
    """A value that was sent to a message. ``at``: when it was sent, in epoch ms of the server's clock."""

    name: str
    at: int
    value: Any = None


class Recorded(NamedTuple):
    """What is recorded for a message: its steps in their order, the ``size`` of their JSON in bytes, the name of the
    signal that it awaits ("" for none), and the signals sent to it, the first one of each name."""

    steps: Sequence[Step] = ()
    size: int = 0
    awaited: str = ""
    signals: Sequence[Signal] = ()

    @classmethod
    def of(cls, given: Sequence[Any] | None) -> Self:
        """A `Recorded` from another process, where JSON has made lists of its tuples. An empty one for None."""
        if given is None:
            return cls()
        steps, size, awaited, signals = given
        return cls([Step(*each) for each in steps], size, awaited, [Signal(*each) for each in signals])

    @classmethod
    def read(cls, head: bytes, entries: Sequence[bytes | None], signals: bytes) -> Self:
        """A `Recorded` from the store's fields. A corrupt entry becomes a nameless step, so the handler repeats it."""
        _, _, awaited = head.partition(b" ")
        steps = [_step_in(entry) for entry in entries]
        size = sum(len(entry) for entry in entries if entry is not None)
        return cls(steps, size, awaited.decode("utf-8", "replace"), _signals(signals))


class StepEntry(NamedTuple):
    """A step as it is stored: its ``number``, from 1; the ``total`` of the message's steps; its JSON; and the name of
    the signal that the message awaits, "" for none. ``called``: the NewMessages to enqueue before it is recorded."""

    number: int
    total: int
    json: str
    awaited: str = ""
    called: Sequence[Any] = ()

    def fields(self, message_id: bytes) -> tuple[bytes, bytes, bytes, bytes]:
        """The fields of the store's hash that hold this step, each followed by its value."""
        head = f"{self.total} {self.awaited}".encode()
        return message_id + b"\n", head, b"%b\n%d" % (message_id, self.number), self.json.encode()


def head_and_signals(message_id: bytes) -> tuple[bytes, bytes]:
    """The names of two fields of the store's hash. The first holds the number of a message's steps and the signal that
    it awaits, the second the signals sent to it."""
    return message_id + b"\n", message_id + b"\n0"


def step_fields(message_id: bytes, head: bytes | None) -> list[bytes]:
    """The names of the store's fields that hold the steps of a message. ``head``: the field with their number."""
    count, _, _ = (head or b"0").partition(b" ")
    most = min(MOST_STEPS, int(count)) if count.isdigit() else 0
    return [b"%b\n%d" % (message_id, number) for number in range(1, most + 1)]


def signal_line(name: str, value: Any) -> tuple[bytes, bytes]:
    """The beginning of a signal's line, as `signal.lua` stores it, and the signal's JSON. BadData if it is invalid."""
    if value is None:
        raise BadData(f"signal {name}", "null", "None means that a wait timed out: send true instead")
    return f"\n{check_step_name(name, 'signal name')}\t".encode(), as_json(value, f"signal {name}").encode()


def _signals(stored: bytes) -> list[Signal]:
    found: dict[str, Signal] = {}
    for line in stored.decode("utf-8", "replace").split("\n"):
        name, _, rest = line.partition("\t")
        at, _, value = rest.partition(" ")
        if at.isdecimal() and name not in found and (each := _array(f"[{value}]".encode(), 1, 1)):
            found[name] = Signal(name, int(at), each[0])
    return [*found.values()]


def _step_in(entry: bytes | None) -> Step:
    match _array(entry, 3, 4):
        case [str(), int(), _] | [str(), int(), _, int()] as each:
            return Step(*each)
    return Step("", 0)


def _array(stored: bytes | None, least: int, most: int) -> list[Any] | None:
    try:
        value = json.loads(stored or b"")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) and least <= len(value) <= most else None


def check_step_name(name: object, what: str) -> str:
    """``name``, if it is valid for a step or a signal. It must not have #, which numbers steps of the same name."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MOST_NAME or "#" in name:
        raise BadData(what, repr(name), f"1 to {MOST_NAME} printable characters, # is not one of them")
    return name


def as_json(value: Any, what: str) -> str:
    """``value`` as JSON. BadData for a value that is too long or invalid; TypeError for a type without JSON form."""
    try:
        text = "".join(quick(value, 0))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError):
        explain(value, what, "give what JSON has")
    if size > MOST_RESULT_BYTES:
        raise BadData(what, f"{size} bytes of JSON", f"at most {MOST_RESULT_BYTES}; store it elsewhere")
    return text


def as_recorded(step: Step) -> str:
    """The JSON of a step whose result is known to have a JSON form."""
    return "".join(quick([*step] if step.until is not None else [*step[:3]], 0))


MOST_CHARACTERS = 200
"""Maximum length of a note, in characters."""


class Progress(NamedTuple):
    """How far a message has come: ``done`` of ``total`` (None: unknown). ``at``: when noted, by the server's clock."""

    done: float
    total: float | None = None
    note: str = ""
    at: datetime = EPOCH

    def __str__(self) -> str:
        """The progress in words, for people."""
        number = f"{self.done:g}" if self.total is None else f"{self.done:g}/{self.total:g}"
        return f"{number} {self.note}".rstrip()


class AttemptLog(NamedTuple):
    """The last lines that an attempt logged and printed. ``at``: when its launch reserved the message, by the server's
    clock. ``text``: the lines; if they are encoded and this process has no codec, an object, as stored."""

    attempt: int
    at: datetime
    text: Any


def checked(done: float, total: float | None, note: str) -> Progress:
    """The progress that a handler reports. BadData for a value that is no finite number, or for a note too long."""
    for name, number in (("done", done), ("total", 0 if total is None else total)):
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= float_info.max:
            raise BadData(f"progress: {name}", str(number)[:MOST_CHARACTERS], "give a finite number")
    if not isinstance(note, str) or len(note) > MOST_CHARACTERS:
        raise BadData("progress: note", str(note)[:MOST_CHARACTERS], f"at most {MOST_CHARACTERS} characters")
    return Progress(done, total, note)
