"""The flags of ``run`` and ``move``, and a quick way to read a launch's command line.

Importing click and having it read a command line are a ninth of a launch's start. What a platform launches is plain:
flags, each given once, with a valid value. `read` reads that; everything else, as help or an error, is click's, whose
options are made of the same flags (`declared` in ``types.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pollconsumer.core.choices import HandOff, LauncherRule, Loop
from pollconsumer.interface.cli.kinds import (
    BYTES,
    CRON,
    NAME_OF_NAMESPACE,
    NAME_OF_QUEUE,
    Kind,
    PlainKind,
    Whole,
    WordKind,
    duration,
)


class Flag(NamedTuple):
    """``kind`` is None for a flag that takes no value. ``name_of_values`` if it may be repeated; ``metavar``, if not
    that of its kind, stands for its value in the help."""

    flag: str
    kind: Kind | None
    help: str
    name_of_values: str = ""
    metavar: str | None = None

    @property
    def name(self) -> str:
        """Of its value."""
        return self.name_of_values or self.flag.removeprefix("--").replace("-", "_")

    @property
    def unset(self) -> object:
        """Its value if it is not given, which leaves a setting of its name as it is: False would be given, too."""
        return () if self.name_of_values else None


COMMON = (
    Flag("--config", PlainKind(str), "Configuration file, else POLLCONSUMER_CONFIG or config.toml.", metavar="PATH"),
    Flag(
        "--store",
        PlainKind(str),
        "embedded, redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://.",
        metavar="URL",
    ),
    Flag("--namespace", NAME_OF_NAMESPACE, "Prefix of every key in the store."),
)
"""Allowed before and after every command."""
_TIMEOUT = Flag("--timeout", duration(positive=True), "Longest running time.")
_SCHEDULE = Flag("--schedule", CRON, "When the platform launches: stop before the next time.")
_HANDOFF = Flag("--handoff", WordKind(HandOff), "When to make way for the next launch.")
_LAUNCHER = Flag("--launcher", WordKind(LauncherRule), "What the platform does while one runs.")
RUN = (
    Flag(
        "--queue",
        NAME_OF_QUEUE,
        "Queue to serve, in this order; repeatable. Without it those of the handlers.",
        name_of_values="queues",
    ),
    _TIMEOUT,
    _SCHEDULE,
    Flag("--idle-time", duration(positive=True), "Longest wait between polls."),
    Flag("--estimated-duration", duration(), "Handling duration assumed before any is measured."),
    Flag("--tolerance-factor", PlainKind(float), "Average duration times this is the margin."),
    Flag("--min-margin", duration(), "Least margin. Unset: learned."),
    Flag("--overrun-target", PlainKind(float), "Share of launches that may outlast their window. Unset: by launcher."),
    Flag("--concurrency", Whole(1, 256), "Messages handled at one time."),
    Flag("--grace", duration(), "The watchdog ends the process this long after its window."),
    _HANDOFF,
    Flag("--loop", WordKind(Loop), "How the loop decides: as it is, or as in its source."),
    _LAUNCHER,
    Flag("--instances", Whole(1, 64), "Launches that may share the queues."),
    Flag("--memory-limit", BYTES, "Stop when resident memory exceeds it."),
    Flag("--until-empty", None, "Stop when there is nothing to handle."),
    Flag("--max-messages", Whole(1), "Stop after so many messages."),
    Flag("--linger", duration(), "With --until-empty: stay until there was nothing for so long."),
)
MOVE = (
    _TIMEOUT,
    _SCHEDULE,
    Flag("--idle-time", duration(positive=True), "Longest wait between looks at the schedule."),
    Flag("--min-margin", duration(), "Time for the exit. Unset: learned."),
    Flag("--batch-size", Whole(1, 500), "Messages promoted in one step."),
    _HANDOFF,
    _LAUNCHER,
)
FLAGS = {"run": RUN, "move": MOVE}


class Given(NamedTuple):
    """A launch's command line: the common flags and its own, by name, in the order in which they were given."""

    command: str
    verbosity: int
    quiet: bool
    common: dict[str, str | None]
    own: dict[str, Any]


def read(arguments: Sequence[str]) -> Given | None:
    """What ``arguments`` give for a launch; None if only click can tell."""
    known = {flag.flag: flag for flag in COMMON}
    command, values, switches = "", dict[str, Any](), {"-v": 0, "-q": 0}
    words = iter(arguments)
    try:
        for word in words:
            flag, equals, value = word.partition("=")
            if flag in known:
                _take(known[flag], value if equals else None, words, values)
            elif not command and word in switches:
                switches[word] += 1
            elif not command and word in FLAGS:
                command = word
                known |= {flag.flag: flag for flag in FLAGS[command]}
            else:
                return None
    except ValueError:
        return None
    if not command or all(switches.values()):
        return None
    common = {flag.name: values.pop(flag.name, None) for flag in COMMON}
    unset = {flag.name: flag.unset for flag in FLAGS[command] if flag.name not in values}
    return Given(command, switches["-v"], bool(switches["-q"]), common, values | unset)


def _take(flag: Flag, value: str | None, words: Iterator[str], values: dict[str, Any]) -> None:
    """Add its value, the next of ``words`` unless given, to ``values``.

    ValueError for what click may refuse, or read in another way.
    """
    if flag.kind is None:
        if value is not None:
            raise ValueError
        values[flag.name] = True
        return
    if value is None:
        value = next(words, "-")
        if value.startswith("-"):
            raise ValueError
    if flag.name_of_values:
        values[flag.name] = (*values.get(flag.name, ()), flag.kind.read(value))
    elif flag.name in values:
        raise ValueError
    else:
        values[flag.name] = flag.kind.read(value)
