"""Text of docs/reference/keyspace.md: the store's keys, the fields of a row, the content of a record.

It is read off `store/keyspace.py`, `store/records/rows.py` and the scripts. What a name means stands here where the
code has no words for it; a name without words is a KeyError.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from pollconsumer.moving.store_closer import CONTROL
from pollconsumer.store.keyspace import CONTROL_SUFFIXES, QUEUE_KEYS
from pollconsumer.store.records import rows
from pollconsumer.store.scripts import Scripts
from tests.store.commands_used import LUA, PACKAGE, code_of, keys_written_by, scripts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CONTROL_KEYS = {
    "store-id": ("string", "id of this store; a process that remembers another id finds that the store was replaced"),
    "fences": (
        "hash",
        "name of a lease → fence of its holder; `last` → the newest fence; `mark` → a number that only rises, which "
        "shows a "
        "loss of writes",
    ),
    "leases": ("set", "names of all leases that were ever held"),
    "launches": (
        "list",
        "ids of the last 5,000 launches, or of all launches of two days, at most 20,000; newest first",
    ),
    "ledger": (
        "hash",
        "id of a launch → its entry, as JSON; `skipped:` and an id → how many launches left because this launch held "
        "the "
        "lease; `left` → the last launch that left at once",
    ),
    "queues": ("set", "names of all queues that ever had a message or a consumer"),
    "queues_marker": ("list", "one element while the mover is to look for queues"),
    "totals": ("hash", "role and stop reason → how many launches ever ended with it; alias → its handler"),
    "histograms": ("hash", "handler → how long all its messages ever took"),
    "seen": ("hash", "role → when a launch of it was last there"),
    "recurring": ("set", "groups that define recurrences"),
    "audit": ("list", "what people did: instant and JSON, the last 10,000, newest first; only operators may write it"),
    "interventions": ("zset", "what people did, written by an earlier version: JSON after a mark, by instant"),
    "answered": ("list", "one for each call: as in a queue"),
    "lease": ("hash", "one for each lease name: fence, number of renewals, holder"),
    "next": ("string", "one for each group: the launch that waits for the lease"),
    "baton": (
        "list",
        "one for each group: has an element for a second after a lease was released, to wake the next launch",
    ),
    "successor_waits": ("string", "one for each group of movers: as in a queue"),
    "durations": ("hash", "one for each group: handler → how long its last messages took, for the margin"),
    "durations_before": (
        "hash",
        "one for each group: what `durations` held before; together the two hold 8,000 to 16,000 durations",
    ),
    "paused_handlers": ("hash", "handler that a person paused → since when"),
    "findings": (
        "hash",
        "name and text of a finding → as JSON: the finding, when it was reported and last found, who found it, when "
        "its "
        "end was reported; `looks` → number of looks since the last report; alarm and handler → instant, seconds and "
        "id "
        "of a message beyond the alarm",
    ),
    "telling": ("string", "a lock, for 15 s at most: present while a process looks for findings and reports them"),
    "wanted": (
        "string",
        "with on_demand, one for each set of queues: present for ten seconds after a producer started a launch",
    ),
    "closing": ("string", "present for 30 s while a store is about to close, so that no lease is given"),
    "imported": ("hash", "key that an import has added → digest of what it added"),
}
"""By word: type and content."""
BY_GROUP = {"lease": ":LINEAGE", "answered": ":CALL", "wanted": ":QUEUES"} | dict.fromkeys(
    ("next", "baton", "successor_waits", "durations", "durations_before"), ":GROUP"
)
WORDS_OF_SCRIPTS = {"recent": "durations", "before": "durations_before"}
"""Words of a script's header for a key of the namespace that is called otherwise elsewhere."""
ANY_KEY = {"close", "fill", "reopen", "rights"}
"""Scripts that are given keys whose words they do not know."""
ROW_FIELDS = {
    "FLAGS": "see below",
    "ENDING": "`c` completed, `d` dead, `x` cancelled, `e` expired, else zero",
    "PRIORITY": "plus 32768",
    "ATTEMPTS": "since it was last redriven",
    "CRASHES": f"deaths of its process while it was in flight; {rows.SPENT}: no attempt is left",
    "GENERATION": "how often it was redriven",
    "FENCE": "of the launch that reserved the message last",
    "RESERVED": "instant",
    "STARTED": "instant; while the message waits in line for a concurrency key, its number in the line",
    "ENDED": "instant of completion, death, cancellation or expiry",
    "SCHEDULED": "instant at which it was accepted",
    "DUE": "instant",
    "ENQUEUED": "instant at which it became ready",
    "FAILED": "instant of its last failed attempt",
    "NEXT_ATTEMPT": "instant",
    "HANDLER": "the handler's name, to the end of the row; if the record is large, then a zero and the record's "
    "digest in eight bytes",
}
ROW_FLAGS = {
    "LARGE": "has a large record, which is dropped when it is completed, cancelled or expired",
    "UNIQUE_KEY": "has a unique key",
    "PARKED": "is parked: no launch knew its handler, or the handler is paused",
    "CONCURRENCY_KEY": "has a concurrency key",
    "WAITING": "waits in line for its concurrency or order key",
    "BEGUN": "is delivered at most once, and its handler is about to be called",
    "CHECKPOINT": "has a checkpoint, or steps",
    "BOOKED": "found its rate used up, and has an instant booked at which it may be handed out",
}
RECORD_FLAGS = {
    "UNIQUE_KEY": "length of the unique key in one byte, and the key",
    "CONCURRENCY_KEY": "the key's limit and its length, in one byte each, and the key",
    "RATE": "number of messages in two bytes, period in ms in six bytes (zeros: the queue's rate), the key's length "
    "in one byte, "
    "and the key",
    "DIGEST": "for an id that the user chose: digest of handler and payload, in eight bytes",
    "EXPIRY": "the instant in six bytes; before the message is accepted, the ms from acceptance or due time to the "
    "expiry",
    "OPTIONS": "length of the options in two bytes, and the options as JSON (`core/messages/message.py`)",
}
"""In the order in which a record has them. The length of a unique key is there without one, too."""
LETTERS = {
    "VERSION": "no more than a unique key and a concurrency key",
    "EXTENDED_VERSION": "also a rate key, a digest, an expiry, or options",
    "FLAGGED_VERSION": "also options that versions of the letter before do not know. After the keys it has a second "
    "byte of "
    "flags. Flag 1: after the options stands a continuation, its length in six bytes and its JSON",
}


def keyspace() -> str:
    parts = [
        "# The keyspace",
        "Made by `python -m tests.interface.references`.",
        *_keys(),
        *_closed(),
        *_row(),
        *_record(),
    ]
    return "\n\n".join(parts) + "\n"


def table(header: str, lines: Iterable[Iterable[object]]) -> str:
    columns = header.split(" | ")
    drawn = ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    return "\n".join([f"| {header} |", "|" + "---|" * len(columns), *drawn])


def _keys() -> Iterator[str]:
    yield (
        "Scripts and Python use words for keys (`store/keyspace.py`). The stored suffixes are short, since each call "
        "sends them. The last two columns name the scripts of `store/lua/` that write a key or set its expiry.\n\n"
        "Python writes some keys without a script. It removes sent entries of an outbox, and keeps them in `told` for "
        "an hour (`store/queues/outbox.py`). It advances the next instant of a recurrence (`store/recurrences.py`), "
        "and takes the elements of markers. It writes `store-id` (`store/suitability.py`), `recurring` "
        "(`store/queues/maintenance.py`), `closing` and `imported` (`moving/`). With `strict`, it writes a key "
        "`replicated`, which lasts a second (`store/client/wire.py`)."
    )
    yield "## Keys of a queue: `{namespace:queue}:suffix`"
    header = "Word | Suffix | Type | Content | Written by | Expiry set by"
    yield table(
        header,
        [
            (f"`{word}`", f"`{key.suffix}`", key.type, key.content, _listed(_writers(word)), _listed(_expirers(word)))
            for word, key in QUEUE_KEYS.items()
        ],
    )
    yield "## Keys of the namespace: `{namespace}:suffix`"
    yield "A group is a role with the queues that it serves. A lease name names one slot of a group's lease."
    yield table(header, _control_lines())


def _control_lines() -> Iterator[tuple[str, ...]]:
    for word in control_words():
        kind, content = CONTROL_KEYS[word]
        stored = CONTROL_SUFFIXES.get(word, word) + BY_GROUP.get(word, "")
        written = _writers(word, of_namespace=True)
        if word == "lease":
            written = ["acquire", *written]  # it writes to one of its slots
        yield (
            f"`{word}`",
            f"`{stored}`",
            kind,
            content,
            _listed(written),
            _listed(_expirers(word, of_namespace=True)),
        )


def control_words() -> list[str]:
    """Those that the product names, those with a note in a closed store first."""
    named = set[str]()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        named |= {*re.findall(r"\bcontrol\(f?\"([a-z_-]+)", text)}
        named |= {*re.findall(r"f\"(lease|baton|next):\{", text)}
    named |= {"durations", "durations_before", "successor_waits"}
    return [*CONTROL, *(word for word in CONTROL_KEYS if word in named - {*CONTROL}), *sorted(named - {*CONTROL_KEYS})]


def _is_of_namespace(script: str) -> bool:
    return any(word not in QUEUE_KEYS for word in Scripts()[script].keys)


def _writers(word: str, *, of_namespace: bool = False) -> list[str]:
    return [
        script
        for script in sorted(scripts() - ANY_KEY)
        if _is_of_namespace(script) is of_namespace
        and word in {WORDS_OF_SCRIPTS.get(each, each) for each in keys_written_by(script)}
    ]


def _expirers(word: str, *, of_namespace: bool = False) -> list[str]:
    pattern = re.compile(rf"'PEXPIRE', {word}\b|'SET', {word}, [^\n]*'PX'")
    found = [
        script
        for script in sorted(scripts() - ANY_KEY)
        if _is_of_namespace(script) is of_namespace and pattern.search(code_of(script))
    ]
    return ["acquire", *found] if word == "lease" else found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _closed() -> Iterator[str]:
    yield "## A closed store"
    yield (
        "A store is closed for its export or its import. Each of these keys is then called `{…}:closed:suffix`, and a "
        "string that says why the store is closed stands in its place (scripts `close`, `fill`, `reopen`; "
        "[decision](../decisions/store.md#moving-a-store))."
    )


def _row() -> Iterator[str]:
    yield "## A row"
    yield (
        "A row says what happened to a message. It is absent until the message is first scheduled, reserved or "
        "changed. "
        "Offsets are in bytes, from 0 (`store/records/rows.py`); scripts count from 1 (`store/lua/parts/rows.lua`). An "
        "instant has six bytes, in ms of the server's clock; zero means never. The row of a completed message ends "
        "before `DUE` if the message was ready at once and never failed, and its record has the handler's name."
    )
    names = [*vars(rows)]
    fields = names[names.index("FLAGS") : names.index("HANDLER") + 1]
    offsets = [getattr(rows, field) for field in fields]
    widths = [*(str(after - offset) for offset, after in pairwise(offsets)), "…"]
    yield table(
        "Field | Offset | Bytes | Content",
        [(f"`{name}`", at, wide, ROW_FIELDS[name]) for name, at, wide in zip(fields, offsets, widths, strict=True)],
    )
    flags = names[names.index("LARGE") : names.index("BOOKED") + 1]
    yield table("Flag | Value | Its message", [(f"`{name}`", getattr(rows, name), ROW_FLAGS[name]) for name in flags])


def _record() -> Iterator[str]:
    constants = constants_of_records()
    yield "## A record"
    yield (
        "A record has what a message was enqueued with. It is written once. A program that finds a later letter, an "
        "unknown flag or an unknown option leaves the message to a newer version of the program: in line, in the "
        "schedule, and in flight when its launch died. An outbox entry with an unknown field is left to it, too."
    )
    yield table("Letter | Has", [(f"`{chr(constants[name])}`", said) for name, said in LETTERS.items()])
    yield table(
        "Bytes, from 0 | Content",
        [
            (0, "letter"),
            (1, "flags"),
            ("2, 3", "priority, plus 32768"),
            ("4 … 9", "instant at which it was accepted"),
            ("10 …", "what the flags announce, in the order of the table below; a zero if there is no unique key"),
            ("…", "name of the handler, a line feed, the payload"),
        ],
    )
    flags = [(f"`{name}`", constants[name], said) for name, said in RECORD_FLAGS.items()]
    yield table("Flag | Value | What stands there", flags)


def constants_of_records() -> dict[str, int]:
    """Those of the scripts' part on records."""
    text = (LUA / "parts" / "records.lua").read_text("utf-8")
    found: dict[str, int] = {}
    for names, values in re.findall(r"^local ([A-Z][A-Z_, ]*) = ([\d, ]+\d)", text, re.MULTILINE):
        found |= dict(zip(names.split(", "), map(int, values.split(", ")), strict=True))
    return {"UNIQUE_KEY": found["UNIQUE"], "CONCURRENCY_KEY": found["CONCURRENCY"]} | found
