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
    "store-id": ("string", "id of this store: a process that remembers another one learns that the store was replaced"),
    "fences": (
        "hash",
        "name of a lease → fence of its holder; `last`: the newest fence; `mark`: what the store has reached",
    ),
    "leases": ("set", "names of all leases that were ever held"),
    "launches": ("list", "ids of the last 5,000 launches, and of those of two days up to 20,000, newest first"),
    "ledger": (
        "hash",
        "id of a launch → its entry, as JSON; `skipped:` and an id → how many left that found its lease held; `left`: "
        "the last of those that left at once",
    ),
    "queues": ("set", "names of all queues that ever had a message or a consumer"),
    "queues_marker": ("list", "one element while the mover is to look for queues"),
    "totals": ("hash", "role and stop reason → how many launches ended with it, ever; alias → its handler"),
    "histograms": ("hash", "handler → durations of all messages, ever"),
    "seen": ("hash", "role → when a launch of it was last there"),
    "recurring": ("set", "groups that define recurrences"),
    "audit": ("list", "what people did: instant and JSON, newest first: the last 10,000; an operator's alone"),
    "interventions": ("zset", "what people did, as an earlier version noted it: JSON after a mark, by instant"),
    "answered": ("list", "by number of a call: as in a queue"),
    "lease": ("hash", "by name: fence, number of renewals, holder"),
    "next": ("string", "by group: the launch that waits for its lease"),
    "baton": ("list", "by group: one element for a second after a lease was released, to wake the next launch"),
    "successor_waits": ("string", "by group of a mover: as in a queue"),
    "durations": ("hash", "by group: handler → durations of its last messages, for the margin"),
    "durations_before": ("hash", "by group: what `durations` held before; together they hold 8,000 to 16,000"),
    "paused_handlers": ("hash", "handler that a person paused → since when"),
    "findings": (
        "hash",
        "name and words of a finding → the finding, as JSON, when it was told and found last, who found it, when its "
        "end was told; `looks` → looks since something was told; alarm and handler → instant, seconds and id of a "
        "message beyond the alarm",
    ),
    "telling": ("string", "for 15 s at most: somebody looks for findings and tells of them"),
    "wanted": (
        "string",
        "with on_demand, by the queues of the configuration: present for a while after a producer had a launch started",
    ),
    "closing": ("string", "while a store is about to close: no lease is given, for 30 s"),
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
    "FENCE": "of the launch that reserved it last",
    "RESERVED": "instant",
    "STARTED": "instant; while it waits in line for a concurrency key: its number there",
    "ENDED": "instant of completion, death, cancellation or expiry",
    "SCHEDULED": "instant at which it was accepted",
    "DUE": "instant",
    "ENQUEUED": "instant at which it became ready",
    "FAILED": "instant of its last failed attempt",
    "NEXT_ATTEMPT": "instant",
    "HANDLER": "its name, to the end; of a large record, after a zero, its digest in eight bytes",
}
ROW_FLAGS = {
    "LARGE": "its record is large, and dropped when it is completed, cancelled or expired",
    "UNIQUE_KEY": "it has a unique key",
    "PARKED": "no launch knew its handler, or that is paused",
    "CONCURRENCY_KEY": "it has a concurrency key",
    "WAITING": "it waits in line for a place of its concurrency key",
    "BEGUN": "delivered at most once, and its handler is about to be called",
    "CHECKPOINT": "it has a checkpoint, or steps",
    "BOOKED": "its rate was used up, and it has an instant at which it may be handed out",
}
RECORD_FLAGS = {
    "UNIQUE_KEY": "length of the unique key in one byte, and the key",
    "CONCURRENCY_KEY": "its limit, its length, a byte each, and the key",
    "RATE": "how many in two bytes, in which ms in six (zeros: the queue's rate), the key's length in one, and the key",
    "DIGEST": "the user chose the id: digest of handler and payload, in eight bytes",
    "EXPIRY": "its instant in six bytes; until it is accepted, the ms from acceptance or due time until then",
    "OPTIONS": "their length in two bytes, and they as JSON (`core/messages/message.py`)",
}
"""In the order in which a record has them. The length of a unique key is there without one, too."""
LETTERS = {
    "VERSION": "unique key and concurrency key at most",
    "EXTENDED_VERSION": "or a rate key, a digest, an expiry, options",
    "FLAGGED_VERSION": "or options that versions of the letter before do not know; after its keys, a second byte of "
    "flags: 1, a continuation behind the options, its length in six bytes and it as JSON",
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
        "Scripts and Python use words for keys (`store/keyspace.py`); the stored suffixes are short, since each call "
        "sends them. The last two columns name scripts of `store/lua/`. Python removes sent entries of an outbox, and "
        "keeps them in `told` for an hour (`store/queues/outbox.py`), advances an instant "
        "(`store/recurrences.py`), takes the elements of markers, and writes `store-id` "
        "(`store/suitability.py`), `recurring` (`store/queues/maintenance.py`), `closing` and `imported` (`moving/`)."
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
    yield "A group is a role with the queues it serves; a lease name names one slot of a group's lease."
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
        "While a store is closed, for its export or its import, each of these keys is `{…}:closed:suffix`, and a "
        "string that says why is in its place (`close`, `fill`, `reopen`; "
        "[decision](../decisions/store.md#moving-a-store)). A key `replicated`, which lasts a second, then marks "
        "what is to be replicated strictly (`store/client/wire.py`)."
    )


def _row() -> Iterator[str]:
    yield "## A row"
    yield (
        "What happened to a message. It is absent until its message is scheduled, reserved or changed for the first "
        "time. Offsets are in bytes, from 0 (`store/records/rows.py`; scripts count from 1: "
        "`store/lua/parts/rows.lua`). Instants are six bytes, in ms of the server's clock, zero for never. The row of "
        "a completed message ends before `DUE` if it was ready at once, never failed, and its record has the "
        "handler's name."
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
        "What a message was enqueued with; written once. A program that finds a later letter, or a flag or an option "
        "that it does not know, leaves the message to a newer one: in line, in the schedule, and in flight when its "
        "launch died. So it does with an entry of an outbox that has an unknown field."
    )
    yield table("Letter | Has", [(f"`{chr(constants[name])}`", said) for name, said in LETTERS.items()])
    yield table(
        "Bytes, from 0 | Content",
        [
            (0, "letter"),
            (1, "flags"),
            ("2, 3", "priority, plus 32768"),
            ("4 … 9", "instant at which it was accepted"),
            ("10 …", "what its flags announce, in their order below; without a unique key, a zero"),
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
