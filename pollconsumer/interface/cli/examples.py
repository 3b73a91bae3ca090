"""What ``--help`` shows below the options: examples of each command, and, of all commands, the exit codes."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": ("pollconsumer run", "pollconsumer run --queue mail --timeout 55s", "pollconsumer -v run --until-empty"),
    "move": ("pollconsumer move",),
    "enqueue": (
        """pollconsumer enqueue mail.send '{"to": "a@b"}' --in 5m""",
        "pollconsumer enqueue --ndjson messages.ndjson",
    ),
    "status": ("pollconsumer status", "pollconsumer status ID --watch"),
    "list": ("pollconsumer list --state ready --queue mail",),
    "cancel": ("pollconsumer cancel ID", "pollconsumer cancel --handler mail.send --yes"),
    "reschedule": ("pollconsumer reschedule ID --in 1h",),
    "dead list": ("pollconsumer dead list --handler mail.send",),
    "dead show": ("pollconsumer dead show ID",),
    "dead redrive": ("pollconsumer dead redrive ID", "pollconsumer dead redrive --all --queue mail"),
    "dead purge": ("pollconsumer dead purge --handler mail.send --yes",),
    "recurrences add": ("pollconsumer recurrences add nightly backup --cron '30 2 * * *' --timezone Europe/Paris",),
    "recurrences history": ("pollconsumer recurrences history nightly",),
    "recurrences list": ("pollconsumer recurrences list",),
    "recurrences next": ("pollconsumer recurrences next nightly -n 10",),
    "recurrences pause": ("pollconsumer recurrences pause nightly",),
    "recurrences resume": ("pollconsumer recurrences resume nightly",),
    "recurrences trigger": ("pollconsumer recurrences trigger nightly",),
    "recurrences remove": ("pollconsumer recurrences remove nightly",),
    "queue list": ("pollconsumer queue list",),
    "queue pause": ("pollconsumer queue pause mail",),
    "queue resume": ("pollconsumer queue resume mail",),
    "queue purge": ("pollconsumer queue purge mail --yes",),
    "launches": ("pollconsumer launches --limit 60",),
    "lease show": ("pollconsumer lease show",),
    "lease break": ("pollconsumer lease break --role mover --yes",),
    "check": ("pollconsumer --config /etc/pollconsumer/config.toml check",),
    "metrics": (
        "pollconsumer metrics",
        "pollconsumer metrics --textfile /var/lib/node_exporter/pollconsumer.prom",
    ),
    "doctor": ("pollconsumer doctor", "pollconsumer doctor --quiet"),
    "dashboard": ("pollconsumer dashboard", "pollconsumer dashboard --static /var/www/queue"),
    "tune": ("pollconsumer tune", "pollconsumer tune --apply"),
    "store start": ("pollconsumer store start",),
    "store stop": ("pollconsumer store stop",),
    "store status": ("pollconsumer store status",),
    "store path": ("pollconsumer store path",),
    "store adopt": ("pollconsumer store adopt",),
    "store export": ("pollconsumer store export store.ndjson", "pollconsumer store export -"),
    "store import": ("pollconsumer --store redis://db.example store import store.ndjson",),
    "store reopen": ("pollconsumer store reopen --yes",),
    "init": (
        "pollconsumer init project mail",
        "pollconsumer init cron",
        "pollconsumer init cron --install",
        "pollconsumer init systemd --write deploy",
    ),
    "completion": ("pollconsumer completion bash >> ~/.bashrc",),
}
"""By command, without ``pollconsumer``."""

EXIT_CODES = {
    "0": "every normal end of a launch; what was asked for is done",
    "1": "a bug of pollconsumer; of doctor: something is wrong",
    "2": "usage",
    "65": "bad data",
    "66": "no such message, queue or recurrence",
    "69": "the store cannot be reached",
    "73": "a file, directory or socket cannot be created",
    "75": "the lease was lost while running",
    "77": "authentication, or permission",
    "78": "configuration, import of handlers, or a store that must not be used",
    "124": "ended by the watchdog",
    "130, 143": "interrupted; a launch: by its second SIGINT or SIGTERM",
}


def below_options(command: str) -> str:
    """For the help of ``command``, or of the program if that is empty."""
    if not command:
        lines = ["Exit codes:", *(f"  {code:8}  {meaning}" for code, meaning in EXIT_CODES.items())]
        return "\n".join(["\b", *lines])
    examples = EXAMPLES.get(command, ())
    lines = ["Examples:" if len(examples) > 1 else "Example:", *(f"  {each}" for each in examples)] if examples else []
    return "\n".join(["\b", *lines, *([""] if lines else []), "Exit codes: see 'pollconsumer --help'."])
