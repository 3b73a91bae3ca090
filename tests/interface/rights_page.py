"""Text of docs/reference/rights.md: the rights of each role's user of the server, as ACL rules."""

from __future__ import annotations

import textwrap

from pollconsumer.store import rights
from pollconsumer.store.client.cluster_wire import RIGHTS as OF_CLUSTERS
from pollconsumer.store.client.wire import WAITING
from pollconsumer.watching.examiner import CUTTING_OFF

ROLES = {
    "producer": ("Programs that enqueue.", rights.PRODUCER),
    "launch": ("The commands `run` and `move`. Their handlers may enqueue as well.", rights.LAUNCH),
    "operator": (
        "The command `enqueue`, and all other commands: `status`, `cancel`, `dead`, `doctor` …",
        rights.OPERATOR,
    ),
    "keeper": ("The commands `store export`, `store import`, `store reopen`.", rights.KEEPER),
}
"""Role → who has it, and its commands."""
OF_QUEUES = "~{pollconsumer:*}:*"
PRODUCED = " ".join(f"~{{pollconsumer}}:{each}" for each in ("queues", "kq", "store-id"))
PATTERNS = {
    "producer": f"{PRODUCED} %R~{{pollconsumer}}:[^a]* {OF_QUEUES}",
    "launch": f"~{{pollconsumer}}:[^a]* {OF_QUEUES}",
    "operator": f"~{{pollconsumer}}:* {OF_QUEUES}",
    "keeper": f"~{{pollconsumer}}:* {OF_QUEUES}",
}
"""The keys of each role. Those of the namespace that begin with an a are an operator's: who did what."""
WIDTH = 116


def rights_page(made: str) -> str:
    """The page; ``made`` says by what."""
    parts = [
        f"# Rights\n\n{made}",
        "Give each user of your Redis or Valkey the rights of one role. Replace `PASSWORD`. For another namespace, "
        "replace `pollconsumer` in all patterns. The right `INFO` lets a program see whether the server evicts keys "
        "or is "
        "a replica. [Store](../store.md#rights) says what a missing right looks like.",
        "Roles guard against accidents: with a producer's password no command of ours can purge, pause, or break a "
        "lease. **Roles do not protect people who do not trust each other**: whoever may enqueue may write the keys of "
        "all queues, and so [forge or destroy](#what-a-password-can-harm) messages.",
    ]
    for role, (whose, commands) in ROLES.items():
        parts.append(f"## {role}\n\n{whose}\n\n```text\n{rule(role, commands)}\n```")
    return "\n\n".join([*parts, HARM, further()]) + "\n"


HARM = """## What a password can harm

| Password of | Can forge, empty or flood, by commands of the server |
|---|---|
| producer | all keys of queues: messages, dead letters, results, progress, recurrences, batches, pauses, counts; the \
list of queues, the id of the store |
| launch | the same, and leases, launches and their ledger, durations, totals, paused handlers |
| operator, keeper | the same, and `audit`: who did what |

Whoever has the password of an operator or keeper can forge or remove entries of `pollconsumer audit`. `who` in an \
entry is what the process says of itself; on the command line that is the user and the host. Earlier versions kept \
entries where producers may write; these are shown as *unverified*. What a program does with a producer's password, \
such as sending a signal, has no entry.

To separate people who do not trust each other, give each a namespace with users of its own, or another server."""


def rule(role: str, commands: str) -> str:
    """The command that makes the role's user; a backslash ends each line but the last."""
    granted = " ".join(f"+{command.lower()}" for command in sorted(["EVALSHA", *commands.split()]))
    lines = textwrap.wrap(granted, WIDTH, break_on_hyphens=False, break_long_words=False)
    return " \\\n  ".join([f"ACL SETUSER {role} on >PASSWORD resetchannels -@all", PATTERNS[role], *lines])


def further() -> str:
    wait, wait_for_file = (f"`{added(name)}`" for name in WAITING)
    lines = [
        f"Over a network give `{added(*CUTTING_OFF)}`. With these rights a process that repeats a call first closes "
        "the connection on which it sent that call. Without them a packet that comes seconds late can cause a message "
        "to be handled or redriven twice.",
        "A program that replaces waiting messages by `replace` needs the producer's rights and "
        f"`{added(*rights.REPLACING.split())}`.",
        "To change a message's priority by `reschedule` or `change`: the operator's rights and "
        f"`{added(rights.CHANGING)}`. "
        "Without it a ready message that is rescheduled keeps its turn.",
        f"A database other than 0 in the URL: `{added('SELECT')}`.",
        f'`durability = "strict"`: {wait}; with `strict.aof` {wait_for_file}.',
        "A launch that reports findings (`doctor.url`, `doctor.mail`), or writes pages (`dashboard.static`), needs the "
        f"launch's rights and `{added('ZCOUNT', 'ZMSCORE')}`.",
        f"`store backup`: the keeper's rights and `{added('CLIENT|INFO', 'REPLCONF', 'SYNC')}`, as for a replica.",
        f"With Sentinel: `{added('ROLE')}`; on the Sentinels `{added('SENTINEL|GET-MASTER-ADDR-BY-NAME')}`.",
    ]
    listed = "\n".join(f"- {line}" for line in lines)
    return (
        f"## What else each role needs\n\n{listed}\n\n"
        f"On a cluster each role needs `{added(*OF_CLUSTERS)}` as well. Each node has its own users: set them on all "
        "nodes, replicas included."
    )


def added(*commands: str) -> str:
    return " ".join(f"+{command.lower()}" for command in commands)
