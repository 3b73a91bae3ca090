"""The command line as click reads it: common options, lazily imported commands, and errors in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class, shell_complete

from pollconsumer.core.errors import STATES, UsageError, command_for, shown, suggestion
from pollconsumer.core.lifecycle import State
from pollconsumer.core.notation.text import redacted
from pollconsumer.core.users_code import printing_on_stderr
from pollconsumer.interface.cli.output import print_help, print_lines, wants_json
from pollconsumer.interface.cli.types import Once, WordType, bound, option, settings_of_section
from pollconsumer.interface.command_line import LAUNCHES
from pollconsumer.interface.logs import logs
from pollconsumer.interface.logs.logs import PERSISTENT, about, log
from pollconsumer.interface.named_files import open_regular
from pollconsumer.interface.settings.load import NAMED_BY, load_settings, name_source, refuse_nowhere
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.names import ENVIRONMENT_FILE, PREFIX, VERSION
from pollconsumer.runtime.system.watchdog import lift, limit, raise_interrupts

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire

COMMANDS = {
    "run": ("interface.cli.launch_commands:run", "Handle messages until just before the next launch."),
    "move": ("interface.cli.launch_commands:move", "Move due messages from the schedule to queues, as run does."),
    "enqueue": ("interface.cli.messages.enqueue:enqueue", "Enqueue a message, or one for each line of a file."),
    "status": ("interface.cli.installation.status:status", "Show one message, or an overview of queues and launches."),
    "list": ("interface.cli.messages.dead:list_", "List messages, by state."),
    "cancel": ("interface.cli.messages.actions:cancel", "Cancel messages; --running also stops running ones."),
    "reschedule": (
        "interface.cli.messages.actions:reschedule",
        "Change the due time, priority or payload of a message.",
    ),
    "rerun": ("interface.cli.messages.actions:rerun", "Run messages that have ended once more."),
    "signal": ("interface.cli.messages.actions:signal", "Send a value to a message that waits for it."),
    "dead": ("interface.cli.messages.dead:dead", "Dead letters: list, show, redrive, purge."),
    "recurrences": (
        "interface.cli.messages.recurrences:recurrences",
        "Recurring messages: add, list, pause, resume, trigger, remove.",
    ),
    "queue": ("interface.cli.messages.actions:queue", "Queues: list, pause, resume, purge."),
    "handler": ("interface.cli.messages.actions:handler", "Handlers: pause, resume."),
    "batch": ("interface.cli.messages.batch:batch", "Batches: list, show, members, cancel, redrive."),
    "launches": ("interface.cli.installation.status:launches", "Show what each launch did, newest first."),
    "audit": ("interface.cli.installation.status:audit", "Show what people did: who, when, what."),
    "lease": ("interface.cli.installation.status:lease", "Show which launch holds a lease, or break it."),
    "check": ("interface.cli.installation.check:check", "Validate configuration and handlers, show the next launches."),
    "metrics": ("watching.metrics:metrics", "Print metrics for Prometheus, or write them to a file."),
    "doctor": ("watching.doctor_command:doctor", "Find problems in the running system; exit with 1 if any."),
    "dashboard": (
        "dashboard.dashboard_command:dashboard",
        "Serve web pages about queues and launches, or write them to files.",
    ),
    "store": (
        "interface.cli.installation.store:store",
        "Control the embedded server; export, import, back up a store.",
    ),
    "init": (
        "platform_files.init_command:init",
        "Write files for cron, systemd and other platforms, or a first project.",
    ),
    "completion": ("interface.cli.group:completion", "Print a completion script for bash, zsh or fish."),
}
"""Command → its module and attribute below pollconsumer, and its help in the list of commands."""
FORMER = {"interventions": "audit"}
"""Former name → command. Former names are accepted, but not listed."""
OPTIONAL_SUBCOMMANDS = {
    "store": [f"moving.store_transfer:{name}" for name in ("export_", "import_", "reopen", "backup")]
}
"""Command → its subcommands in optional packages, in the form of `COMMANDS`. No core package may import those."""
CHANGING = frozenset(
    (
        *("enqueue", "cancel", "reschedule", "rerun", "signal", "lease break"),
        *("dead redrive", "dead purge", "batch cancel", "batch redrive"),
        *("recurrences add", "recurrences pause", "recurrences remove", "recurrences resume", "recurrences trigger"),
        *("queue pause", "queue purge", "queue resume", "handler pause", "handler resume"),
        *("store adopt", "store import", "store reopen"),
    )
)
"""Commands that change what is stored. They are refused if the user has not chosen a store in any way. Other commands
then warn, and read."""
ALARM = "doctor"
"""This command is refused, too, if no store was chosen: the alarm must not call a store healthy that nobody chose."""
UNWARNED = frozenset({*LAUNCHES, "metrics"})
"""Commands that do not warn if no store was chosen. Launches refuse by themselves; nobody reads what metrics print."""
SHORT = frozenset({"check", "doctor", "enqueue", "launches", "lease", "metrics", "status"})
"""Commands whose whole time is limited, since cron starts them, too. Input or output without end lifts the limit."""
END_WITHIN = 60.0
"""A command of `SHORT` must end within so many seconds after its settings are read."""
TAB = "_POLLCONSUMER_COMPLETE"
"""A shell sets this variable when it runs the program at each TAB."""
EXIT_CODES = {
    "0": "success; a launch that ended as planned, even if messages failed",
    "1": "bug in pollconsumer; handler held the GIL; doctor found a problem",
    "2": "wrong usage",
    "65": "invalid data",
    "66": "no such message, queue, recurrence, batch or lease",
    "69": "the store cannot be reached",
    "73": "a file, directory or socket cannot be created",
    "75": "the launch lost its lease",
    "77": "authentication failed, or permission denied",
    "78": "wrong configuration, failed import of handlers, or unsafe store",
    "124": "killed by the watchdog; 134 if the handler let nothing else run",
    "130, 143": "interrupted by SIGINT or SIGTERM; a launch: by a second signal",
}
DOCUMENTATION = "Documentation: https://github.com/pollconsumer/pollconsumer/blob/main/docs/index.md"
OF_PROGRAM = "\n".join(
    ["\b", "Exit codes:", *(f"  {code:8}  {meaning}" for code, meaning in EXIT_CODES.items()), "", DOCUMENTATION]
)

SEE_ALL = "Exit codes: see 'pollconsumer --help'."
NEEDLESS = dict.fromkeys(("--beat", "--with-scheduler"), "leave it out: each launch promotes what comes due")
"""Options of other job queues that have no counterpart here, each with what to do instead."""
VERBOSITY = {"-v": "verbosity", "-q": "quiet"}
"""Flags that are allowed before and after every command."""


class Commands(click.Group):
    """The group of all commands. It imports the module of a command when the command is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's signature
        cmd_name = FORMER.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        command = _imported(COMMANDS[cmd_name][0])
        for target in OPTIONAL_SUBCOMMANDS.get(cmd_name, ()):
            assert isinstance(command, click.Group)
            command.add_command(_imported(target))
        _complete(command)
        if cmd_name not in LAUNCHES:
            raise_interrupts()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _imported(target: str) -> click.Command:
    module, _, attribute = target.partition(":")
    command = getattr(import_module(f"pollconsumer.{module}"), attribute)
    assert isinstance(command, click.Command)
    return command


def _complete(command: click.Command) -> None:
    """Add the common options to a command and its subcommands, limit the values of their parameters (see `bound`), and
    add what help shows below the options."""
    if any("--config" in parameter.opts for parameter in command.params):
        return  # the command was looked up before in this process
    for parameter in command.params:
        bound(parameter)
    for each in (each for each in group.params if isinstance(each, Once)):
        option = Once(each.opts, type=each.type, hidden=True, expose_value=False, callback=_take_common_option)
        command.params.append(option)
    for letter, counted in (("-v", True), ("-q", False)):
        given: dict[str, Any] = {"count": True} if counted else {"is_flag": True}
        names = [letter, VERBOSITY[letter]]
        command.params.append(click.Option(names, hidden=True, expose_value=False, callback=_speak, **given))
    examples = (command.epilog or "").splitlines()
    shown = ["Examples:" if len(examples) > 1 else "Example:", *(f"  {each}" for each in examples), ""]
    command.epilog = "\n".join(["\b", *(shown if examples else []), SEE_ALL])
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _complete(inner)


def _speak(context: click.Context, option: click.Parameter, value: int) -> None:
    given = context.find_root().params
    if value:
        assert option.name is not None
        given[option.name] = value
        _set_verbosity(given["verbosity"], quiet=given["quiet"])


def _set_verbosity(verbosity: int, *, quiet: bool) -> None:
    if quiet and verbosity:
        raise UsageError("-q", "-v", "give one of them")
    logs.configure(verbosity, quiet=quiet)
    if verbosity:
        log.streaks = None


def _take_common_option(context: click.Context, option: click.Parameter, value: str | None) -> None:
    given = context.find_root().params
    if value is not None:
        assert option.name is not None
        if given[option.name] is not None:
            raise click.BadParameter("given twice; give it once", ctx=context, param=option)
        given[option.name] = value


@click.group(
    cls=Commands,
    epilog=OF_PROGRAM,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@option(
    "--config",
    "Configuration file. Default: POLLCONSUMER_CONFIG, else config.toml in this directory or above.",
    metavar="PATH",
)
@settings_of_section("")
@click.option("-v", "verbosity", count=True, help="Log more. -vv logs everything.")
@click.option("-q", "quiet", is_flag=True, help="Log errors only.")
@click.version_option(VERSION, message="%(prog)s %(version)s")
def group(config: str | None, store: str | None, namespace: str | None, verbosity: int, quiet: bool) -> None:  # noqa: ARG001  # current_settings
    """The job queue for places that only give you cron."""
    _set_verbosity(verbosity, quiet=quiet)


@click.command(epilog="pollconsumer completion bash >> ~/.bashrc")
@click.argument("shell", type=WordType(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print a script that completes commands and options in a shell.

    \b
    bash: pollconsumer completion bash > ~/.local/share/bash-completion/completions/pollconsumer
    zsh:  pollconsumer completion zsh > "${fpath[1]}/_pollconsumer"
    fish: pollconsumer completion fish > ~/.config/fish/completions/pollconsumer.fish"""
    found = get_completion_class(shell)
    assert found is not None
    print_lines(found(group, {}, "pollconsumer", TAB).source().splitlines())


def current_settings() -> Settings:
    """The settings of the running command, before its own flags. Raises the errors of ``load_settings``."""
    root = click.get_current_context().find_root()
    known: Settings | None = root.meta.get("pollconsumer.settings")
    if known is None:
        if not (launches := root.invoked_subcommand in LAUNCHES):
            limit()  # reading its input may have taken long
        given = root.params
        config = None if given["config"] is None else Path(given["config"])
        known = load_settings(config, store=given["store"], namespace=given["namespace"])
        root.meta["pollconsumer.settings"] = known
        if log.streaks is not None:
            log.streaks.files = known.state_files()
        if not launches:
            name_configuration(known)
            limit_command()
            root.with_resource(printing_on_stderr())
        if known.nowhere is not None:
            _meet_nowhere(known)
        _warn_of_unset_variables(known, {f"{PREFIX}{name.upper()}" for name in ("store", "namespace") if given[name]})
    return known


def name_configuration(settings: Settings) -> None:
    """Log which configuration the command uses."""
    log.info("configuration: %s", settings.config or settings.nowhere or "none: the environment alone")


def _meet_nowhere(settings: Settings) -> None:
    """The user has not chosen a store: raise ConfigurationError for `CHANGING` and `ALARM`, else warn a person."""
    context = click.get_current_context()
    name = context.command_path.partition(" ")[2]
    if name in CHANGING or name == ALARM:
        refuse_nowhere(settings)
    if name not in UNWARNED and not (wants_json() or context.params.get("quiet")):
        log.warning("%s: reading the store of your user, which belongs to no project; %s", settings.nowhere, NAMED_BY)


def _warn_of_unset_variables(settings: Settings, given: Collection[str]) -> None:
    """Warn if ``init`` wrote a file of variables for launches, and this command lacks some of them: its store may be
    another one than theirs. ``given``: variables that flags replace."""
    if settings.config is None:
        return
    file = settings.config.with_name(ENVIRONMENT_FILE)
    try:
        with os.fdopen(open_regular(file), encoding="utf-8") as opened:
            lines = opened.readlines()
    except (OSError, UnicodeDecodeError):
        return
    names = [line.partition("=")[0] for line in lines if line.startswith(PREFIX)]
    if unset := [name for name in names if name not in os.environ and name not in given]:
        text = "not set: %s; launches get it from %s: in its directory type 'set -a; . ./%s; set +a' first"
        streak = about("unset variables", kind=PERSISTENT)
        log.warning(text, ", ".join(unset), file, ENVIRONMENT_FILE, extra=streak)


def limit_command() -> None:
    """Limit the time of the running command if it is in `SHORT`; else lift the limit."""
    name = click.get_current_context().find_root().invoked_subcommand
    if name in SHORT:
        limit(END_WITHIN, f"{name} not ended")
    else:
        lift()


def wires_of_command() -> list[Wire]:
    """The connections that the running command has opened."""
    wires: list[Wire] = click.get_current_context().find_root().meta.setdefault("pollconsumer.wires", [])
    return wires


def invoke(arguments: Sequence[str]) -> int:
    if instruction := os.environ.get(TAB):
        return shell_complete(group, {}, "pollconsumer", TAB, instruction)
    if [*arguments][:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        with group.make_context("pollconsumer", [*arguments]) as context:
            try:
                code = group.invoke(context)
            except Exception as error:
                _raise_if_misread(error)
                if (settings := context.meta.get("pollconsumer.settings")) is not None:
                    name_source(error, settings, context.params["store"])
                raise
            if unread := {queue for wire in wires_of_command() for queue in wire.unread}:
                from pollconsumer.store.server import unreachable  # help needs no store

                raise unreachable(unread)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print_help(error.message)
        return UsageError.exit_code
    except click.ClickException as error:
        text = _line(error)
        raise UsageError(redacted(text) if "://" in text else text) from None
    except click.Abort as abort:
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise UsageError("not confirmed", fix="answer y, or give --yes") from None
    return code if isinstance(code, int) else 0


def _raise_if_misread(error: Exception) -> None:
    """If ``error`` came from the reply of a server that is not Redis, raise an error that says so. With ``-v`` the new
    error shows the traceback of ``error``."""
    for wire in wires_of_command():
        if (refusal := wire.misread(error)) is not None:
            refusal.traced = "".join(format_exception(error))
            raise refusal from error


def _line(error: click.ClickException) -> str:
    """The line ``WHAT: VALUE; FIX`` for an error of click."""
    context = getattr(error, "ctx", None)
    see = f"see '{context.command_path} --help'" if context else "see 'pollconsumer --help'"
    text = error.message.rstrip(".")
    if isinstance(error, click.NoSuchOption):
        text = f"unknown option: {shown(error.option_name)}"
        see = suggestion(error.option_name, _options(context) or error.possibilities or (), see)
        see = NEEDLESS.get(error.option_name, see)
    elif isinstance(error, click.BadOptionUsage):
        text = f"{error.option_name}: {text.removeprefix(f'Option {error.option_name!r} ')}"
    elif isinstance(error, click.MissingParameter) and error.param is not None:
        text = f"missing {error.param.param_type_name}: {_name(error.param)}"
    elif isinstance(error, click.BadParameter) and error.param is not None:
        if "; " not in text:  # from one of click's own types
            text = _from_click(text, error.param.type)
        text = f"{_name(error.param)}: {text}"
    elif found := re.match(r"No such command '(.*)'", text, re.DOTALL):
        text = f"unknown command: {shown(found[1])}"
        see = _similar(found[1], context, see)
    elif found := re.match(r"Got unexpected extra arguments? \((.*)\)", text, re.DOTALL):
        text = f"unexpected argument: {shown(found[1])}"
        see = _meant(found[1], context, see)
    elif text == "Missing command":
        text = "missing argument: COMMAND"
    return text if "; " in text else f"{text}; {see}"


def _meant(argument: str, context: click.Context | None, see: str) -> str:
    """A hint at what to write instead of an unexpected ``argument``. ``see`` if there is no likely one."""
    if context is None:
        return see
    if "--state" in _options(context) and (state := STATES.get(argument, argument)) in set(State):
        return f"a state is given as --state {state}"
    if "--queue" in _options(context) and not any(isinstance(each, click.Argument) for each in context.command.params):
        return f"a queue is given as --queue {shown(argument)}; {see}"
    if context.command.name == "enqueue" and "=" in argument:
        return """the payload is one JSON object: write '{"name": "x"}'"""
    return see


def _from_click(text: str, kind: click.ParamType[Any]) -> str:
    """The text ``VALUE; RULE`` for an error of one of click's own types."""
    value, reason, rule = text.partition(" is not ")
    if isinstance(kind, click.IntRange):
        span = f"{kind.min}-{kind.max}" if kind.min is None or kind.min >= 0 else f"from {kind.min} to {kind.max}"
        rule = span if rule.startswith("in the range") else f"a whole number, {span}"
    return f"{shown(value)}; must be {rule}" if reason else text


def _similar(name: str, context: click.Context | None, see: str) -> str:
    command = context.command if context else None
    names = command.list_commands(context) if context and isinstance(command, click.Group) else []
    meant = command_for(name, context.command_path.partition(" ")[2] if context else "", names)
    return f"did you mean {meant}?" if meant else suggestion(name, names, see)


def _options(context: click.Context | None) -> list[str]:
    parameters = context.command.params if context else []
    return [name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)]


def _name(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    if isinstance(parameter.type, WordType):  # its metavar would list all its words
        return str(parameter.name).upper()
    return parameter.make_metavar(click.get_current_context(silent=True) or click.Context(group)).strip("[]")
