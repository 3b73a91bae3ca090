"""The flags of ``run`` and ``move``, most of them settings, and a quick way to read a launch's command line.

Importing click and having it read a command line take a ninth of a launch's start. The command lines of platforms are
plain: flags, each given once, with a valid value. `read` reads such a line; help, errors and everything else are left
to click, whose options are made of the same flags (`declared` in ``types.py``).
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from pollconsumer.core import choices
from pollconsumer.interface.cli.kinds import (
    BYTES,
    CRON,
    NAME_TEXT,
    Kind,
    PlainKind,
    Whole,
    WordKind,
    duration,
)
from pollconsumer.interface.settings.fields import (
    CHECK_CRON,
    CHECK_NAME,
    READ_DURATION,
    READ_MEMORY,
    DeclaredField,
    declared_fields,
)

KINDS: dict[str, Kind] = {CHECK_CRON: CRON, READ_MEMORY: BYTES, CHECK_NAME: NAME_TEXT}
"""Function that reads or checks a setting → the kind of its values on the command line."""


class Flag(NamedTuple):
    """A flag of a launch command. ``kind``: of its value; None for a switch, a flag that takes no value, which
    ``negation`` switches off. ``name_of_values``: the name of all its values, if it may be repeated. ``metavar``: what
    stands for its value in the help, if that is not what its kind says."""

    flag: str
    kind: Kind | None
    help: str
    name_of_values: str = ""
    metavar: str | None = None
    default: Any = None
    """The default of the setting."""
    former: str = ""
    """The flag's former spelling, accepted as well, and shown nowhere."""
    negation: str = ""

    @property
    def name(self) -> str:
        """The name of its value."""
        return self.name_of_values or self.flag.removeprefix("--").replace("-", "_")

    @property
    def unset(self) -> object:
        """The value of a flag that is not given, which leaves the setting as it is. False would change it."""
        return () if self.name_of_values else None


OWN = {
    "run": (
        Flag("--if-free", None, "End at once if another launch holds the lease."),
        Flag("--until-empty", None, "End when the queues are empty, or when the window is over."),
        Flag("--max-messages", Whole(1), "End after this many messages."),
        Flag("--linger", duration(), "With --until-empty: end when the queues have been empty for this long."),
    ),
    "move": (),
}
"""The flags of a launch that are no settings."""
SECTIONS = {"run": "consumer", "move": "mover"}


@cache
def common_flags() -> tuple[Flag, ...]:
    """Flags that are allowed before and after every command."""
    config = "Configuration file. Default: POLLCONSUMER_CONFIG, else config.toml in this directory or above."
    return (Flag("--config", PlainKind(str), config, metavar="PATH"), *_of_settings(""))


@cache
def flags_of(command: str) -> tuple[Flag, ...]:
    """All flags of a launch command: of its settings, and its own."""
    return (*_of_settings(SECTIONS[command]), *OWN[command])


def _of_settings(section: str) -> Iterator[Flag]:
    for key, setting in declared_fields().section(section).items():
        if setting.flag is not None:
            default = None if setting.default is None else setting.restored(setting.default)
            yield Flag(
                setting.flag,
                _kind_of(setting),
                setting.help.replace("`", ""),
                name_of_values=key if setting.kind == "tuple" else "",
                metavar="URL" if key == "store" else None,
                default=default,
                former=f"--{setting.former.replace('_', '-')}" if setting.former else "",
                negation=f"--no-{setting.flag.removeprefix('--')}" if setting.kind == "bool" else "",
            )


def _kind_of(setting: DeclaredField) -> Kind | None:
    if setting.kind == "bool":
        return None
    if setting.enum:
        return WordKind(getattr(choices, setting.enum))
    if setting.reads == READ_DURATION:
        return duration(positive=setting.over is not None)
    if setting.kind == "int" and setting.least is not None:
        return Whole(int(setting.least)) if setting.most is None else Whole(int(setting.least), int(setting.most))
    if setting.items is not None:
        return NAME_TEXT
    for name in (setting.reads, *setting.checks):
        if name in KINDS:
            return KINDS[name]
    return PlainKind(float if setting.kind == "float" else str)


class Given(NamedTuple):
    """A launch's command line: the common flags and its own, by name, in the order in which they were given."""

    command: str
    verbosity: int
    quiet: bool
    common: dict[str, str | None]
    own: dict[str, Any]


def read(arguments: Sequence[str]) -> Given | None:
    """What ``arguments`` give for a launch; None if only click can tell."""
    known = _by_name(common_flags())
    command, values, switches = "", dict[str, Any](), {"-v": 0, "-q": 0}
    words = iter(arguments)
    try:
        for word in words:
            flag, equals, value = word.partition("=")
            if flag in known:
                _take(known[flag], flag, value if equals else None, words, values)
            elif not command and word in switches:
                switches[word] += 1
            elif not command and word in SECTIONS:
                command = word
                known |= _by_name(flags_of(command))
            else:
                return None
    except ValueError:
        return None
    if not command or all(switches.values()):
        return None
    common = {flag.name: values.pop(flag.name, None) for flag in common_flags()}
    unset = {flag.name: flag.unset for flag in flags_of(command) if flag.name not in values}
    return Given(command, switches["-v"], bool(switches["-q"]), common, values | unset)


def _by_name(flags: Sequence[Flag]) -> dict[str, Flag]:
    return {name: flag for flag in flags for name in (flag.flag, flag.former, flag.negation) if name}


def _take(flag: Flag, written: str, value: str | None, words: Iterator[str], values: dict[str, Any]) -> None:
    """Add the value of ``flag``, as it is ``written``, to ``values``: the next of ``words`` unless given.

    ValueError for what click may refuse, or read in another way.
    """
    if flag.kind is None:
        if value is not None:
            raise ValueError
        values[flag.name] = written != flag.negation
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
