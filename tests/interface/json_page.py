"""Text of docs/reference/json.md, from `json_shapes.py`, and what commands print, to be compared with it."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.interface.json_shapes import ENQUEUE, TEXTS
from tests.interface.keyspace_page import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.site import Site

PRINTING = {
    ENQUEUE: "a message that is accepted",
    "enqueue fatal --id f": None,
    "enqueue fatal --id g": None,
    'enqueue record \'{"name": "c"}\' --queue other --in 1h': None,
    'recurrences add hourly record \'{"name": "b"}\' --every 1h --first now': None,
    "enqueue --ndjson rows --batch import-42 --then fatal": None,
    "run --until-empty": None,
    "run": None,
    "status a": "a message",
    "status": "the overview",
    "list": "an array of messages",
    "dead list": "an array of dead letters",
    "dead show f": "a dead letter",
    "queue list": "an array of queues",
    "recurrences list": "an array of recurrences",
    "recurrences history hourly": "an array of occurrences, newest first",
    "launches": "an array, the ledger, newest first",
    "audit": "an array, what people did, newest first",
    "lease show": "an array of leases",
    "check": "the configuration",
    "check --compat": "what the server lacks",
    "doctor": "findings",
    "store status": "the embedded server",
    "store path": "its directory",
    "recurrences next hourly": "an array of instants",
    "recurrences trigger hourly": "an occurrence that is accepted",
    "batch list": "an array of batches",
    "batch show import-42": "a batch",
    "batch members import-42": "an array of messages",
    "batch cancel import-42": "what would be done",
    "batch cancel import-42 --yes": "what was done",
    "batch redrive import-42": "what was done",
    "dead redrive f": "what was done",
    "dead purge --yes g": "what was done",
    "cancel --handler record --queue other": "what would be done",
    "queue purge other": "what would be done",
    "cancel --handler record --queue other --yes": "what was done",
    "queue purge other --yes": "what was done",
    "recurrences pause --prefix hour": "what would be done; of `resume` and `remove` likewise",
    "recurrences pause --prefix hour --yes": "what was done",
    "recurrences resume --prefix hour --yes": "what was done",
    "recurrences remove --prefix hour --yes": "what was done",
    "rerun a": "an array of the new messages",
    "store export store.ndjson --yes": "what was written; of `store backup` as well; of `store import`, what was read",
}
"""Commands in the order in which they are run, `run` beside what follows; keys are listed of those with a title."""
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
KINDS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "instant": (str,),
    "whole number": (int,),
    "bytes": (int,),
    "number": (int, float),
    "seconds": (int, float),
    "true or false": (bool,),
    "true, false or text": (bool, str),
    "object": (dict,),
}
HEAD = """An instant is text, ISO 8601 in UTC with milliseconds. Seconds are a number; so are bytes. `any` is what a
handler returned. An object without keys here is yours, or has names that you chose."""


class Key(NamedTuple):
    """A key that a command prints: its path, its type in the words of `KINDS`, an example as JSON, and what it is."""

    path: str
    kind: str
    example: str
    note: str


def keys_of(line: str) -> list[Key]:
    """The declared keys of a command line."""
    columns = [re.split(r"\s{2,}", each.strip()) for each in TEXTS.get(line, "").splitlines() if each.strip()]
    return [Key(path, kind, *_example_and_note(more)) for path, kind, *more in columns]


def _example_and_note(given: list[str]) -> tuple[str, str]:
    example, note, *_ = [*given, "", ""]
    try:
        json.loads(example)
    except ValueError:
        return "", example or note
    return example, note


def json_keys() -> str:
    """The page."""
    parts = [f"# Keys of `--json`\n\nMade by `python -m tests.interface.references`.\n\n{HEAD}"]
    for line, title in PRINTING.items():
        if title is not None:
            parts.append(f"## `{line}`: {title}")
            if keys := keys_of(line):
                parts.append(table("Key | Type | Example | ", map(_row, keys)))
    return "\n\n".join(parts) + "\n"


def _row(key: Key) -> tuple[str, str, str, str]:
    return f"`{key.path}`", key.kind, key.example and f"`{key.example}`", key.note


def printed_at(site: Site) -> Iterator[tuple[str, Any]]:
    """Command line and what it prints, of each with a title, on a site where a message was completed, two are dead, and
    a recurrence is due."""
    beside = None
    (site.directory / "rows").write_text('{"handler": "record", "payload": {"name": "d"}, "in": "1h"}')
    for line, title in PRINTING.items():
        words = shlex.split(line)
        if line == "run":
            beside = site.start("run")
            site.await_holder(beside.pid)
        elif title is None:
            assert site.command(*words).returncode == 0
        else:
            if words[:2] == ["store", "export"] and beside is not None:
                beside.terminate()  # a launch would hold a lease, and the store could not be closed
                beside.communicate(timeout=90)
            yield line, json.loads(site.command(*words, "--json").stdout)


def misfits(printed: Any, keys: list[Key], above: str = "") -> Iterator[str]:
    """What is printed otherwise than ``keys`` say, below the path ``above``."""
    if isinstance(printed, list):
        for each in printed:
            yield from misfits(each, keys, above) if isinstance(each, dict) else ()
        return
    here = [key for key in keys if key.path.startswith(above) and "." not in key.path.removeprefix(above)]
    names = [key.path.removeprefix(above) for key in here]
    if [*printed] != names:
        yield f"{above or 'keys'}: {[*printed]} are printed, {names} declared"
        return
    for name, key in zip(names, here, strict=True):
        if not is_of_kind(printed[name], key.kind):
            yield f"{key.path}: {printed[name]!r} is printed, {key.kind} declared"
        elif printed[name] and any(each.path.startswith(f"{key.path}.") for each in keys):
            yield from misfits(printed[name], keys, f"{key.path}.")


def is_of_kind(value: Any, kind: str) -> bool:
    """Whether a value that was printed is one of the type, written as in `Key`."""
    kind, may_be_null, _ = kind.partition(" or null")
    if value is None or kind == "any":
        return kind == "any" or bool(may_be_null)
    if kind.startswith("list of "):
        return isinstance(value, list) and all(is_of_kind(each, kind.removeprefix("list of ")) for each in value)
    if isinstance(value, bool) and bool not in KINDS[kind]:
        return False
    return isinstance(value, KINDS[kind]) and (kind != "instant" or INSTANT.fullmatch(str(value)) is not None)


def declared() -> Mapping[str, list[Key]]:
    return {line: keys_of(line) for line in TEXTS}
