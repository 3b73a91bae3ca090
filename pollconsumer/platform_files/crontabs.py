"""Crontabs: the lines for a configuration, printed or installed in this user's crontab."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import click

from pollconsumer.core.errors import CannotCreate, ConfigurationError, PermissionDenied, PollConsumerError, shown
from pollconsumer.interface.cli.output import print_line, print_lines, print_notice
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.load import NAME, absolute, find_config
from pollconsumer.interface.settings.names import CONFIG_VARIABLE
from pollconsumer.interface.settings.values import check_cron
from pollconsumer.platform_files.files import File, crontab
from pollconsumer.platform_files.installation import Installation

HOURLY = "7 * * * *"
"""An hourly schedule, at a minute that few others use."""
PATIENCE = 30.0
"""Timeout of one call of ``crontab``, in seconds."""
BLOCK = re.compile(
    rb"^# pollconsumer begin: (?P<path>[^\r\n\0]*)\r?\n"
    rb"(?:(?!# pollconsumer (?:begin|end): )[^\n]*\n)*"
    rb"# pollconsumer end: (?P=path)\r?(?:\n|\Z)",
    re.MULTILINE,
)
BLOCK_LINE = re.compile(rb"^# pollconsumer (?:begin|end): ([^\r\n\0]*)", re.MULTILINE)
ABSENT = re.compile(r"no crontab for |can't open .*: No such file")
"""What ``crontab`` prints if the user has no crontab: Debian's cron, cronie, macOS, and busybox."""


def cron_files(installation: Installation) -> list[File]:
    """A crontab for Debian's cron, cronie and busybox. A launch finds out which cron it is. Either hand-off works: a
    second launch at the tick waits for the lease."""
    text = installation.render(
        "crontab",
        launches="\n".join(_launches(installation)),
        options="".join(f" {each}" for each in map(shlex.quote, installation.options)),
        lines=len(entries(installation)),
        schedule=installation.schedule,
        hourly=HOURLY,
        doctor=_command(installation, installation.doctor()),
        move=_command(installation, installation.move()),
    )
    return [File("crontab", text), *installation.environment_files(printed=False)]


def entries(installation: Installation) -> list[str]:
    """Lines that can stand among a user's other lines. They bring their variables, and set none for later lines."""
    return [*_launches(installation), f"{HOURLY} {_command(installation, installation.doctor())}"]


def _launches(installation: Installation) -> list[str]:
    """A line for each launch that is started at a tick."""
    return [f"{installation.schedule} {_command(installation, words)}" for words in installation.launches()]


def _command(installation: Installation, words: tuple[str, ...]) -> str:
    """A command, with its variables in the same line, since busybox's crond ignores lines that set variables other than
    SHELL, PATH and MAILTO."""
    source = f"set -a; . {crontab([str(installation.environment_file)])}; " if installation.environment else ""
    home = ("env", f"XDG_DATA_HOME={installation.data_home}") if installation.data_home else ()
    return f"{source}exec {crontab([*home, *words])}"


def install(installation: Installation) -> None:
    """Install the lines for the configuration in the crontab. They replace the configuration's earlier lines."""
    config = installation.settings.config
    if config is None:
        where = installation.settings.directory
        raise ConfigurationError("no configuration file in", where, "launches of cron need one: name it by --config")
    table = UsersCrontab()
    content = table.read()
    block = block_of(config, entries(installation))
    changed, former = with_block(content, config, block)
    if changed != content:
        table.replace(changed)
    message = "unchanged in" if changed == content else "renewed in" if former else "added to"
    _show(f"{message} the crontab of {installation.user}:", block)
    for line in map(os.fsdecode, with_block(content, config, b"")[0].splitlines()):
        if f" run --config {crontab([str(config)])}" in line and not line.lstrip().startswith("#"):
            print_notice(f"another line launches this configuration, too; remove it with crontab -e: {line}")


def installed_queues(config: Path) -> list[list[str]]:
    """The queues that each launch of ``config`` in the crontab has as options. Empty if the crontab is unreadable."""
    with suppress(PollConsumerError):
        return [re.findall(r" --queue[ =](\S+)", line) for line in _installed_launches(config)]
    return []


def installed_schedule(config: Path) -> str | None:
    """The schedule of the launches of ``config`` in the user's crontab. None without such a line, if the crontab cannot
    be read, or, with a warning, if the schedule is invalid."""
    with suppress(PollConsumerError):
        for line in _installed_launches(config):
            if given := re.search(r" --schedule '([^']+)'", line):
                try:
                    check_cron(given[1])
                    return given[1]
                except ValueError as error:
                    text = "the crontab's --schedule of %s: %s; %s: correct it with crontab -e"
                    log.warning(text, config, shown(given[1]), error)
                    break
    return None


def _installed_launches(config: Path) -> list[str]:
    lines = map(os.fsdecode, with_block(UsersCrontab().read(), config, b"")[1].splitlines())
    return [line for line in lines if " run " in line and not line.lstrip().startswith("#")]


def uninstall(user: str) -> None:
    """Remove the lines for the configuration, which may be invalid or missing by now."""
    named = click.get_current_context().find_root().params["config"] or os.environ.get(CONFIG_VARIABLE)
    config = absolute(Path(named or NAME))
    table = UsersCrontab("remove the lines of 'init cron' where they were put, as in a control panel")
    content = table.read()
    changed, former = with_block(content, config, b"")
    if not (named or former or config.exists()) and (above := find_config(None, None)) is not None:
        config = above
        changed, former = with_block(content, config, b"")
    if not former:
        print_line(f"the crontab of {user} has no lines of {config}")
        return
    table.replace(changed)
    _show(f"taken out of the crontab of {user}:", former)


def _show(heading: str, block: bytes) -> None:
    print_lines([heading, *map(os.fsdecode, block.splitlines())])


def block_of(config: Path, lines: Iterable[str]) -> bytes:
    between = [f"# pollconsumer begin: {config}", *lines, f"# pollconsumer end: {config}"]
    return b"".join(os.fsencode(line) + b"\n" for line in between)


def with_block(content: bytes, config: Path, block: bytes) -> tuple[bytes, bytes]:
    """``content``, in which ``block`` replaces the lines for ``config``, or is appended if there are none; and the
    replaced lines. All other lines stay as they are, byte for byte. ConfigurationError if one of the two comments
    around the lines is missing."""
    former: list[bytes] = []

    def instead(found: re.Match[bytes]) -> bytes:
        if not _is_same(found["path"], config):
            return found[0]
        former.append(found[0])
        return block if len(former) == 1 else b""

    changed = BLOCK.sub(instead, content)
    if any(_is_same(path, config) for path in BLOCK_LINE.findall(BLOCK.sub(b"", content))):
        fix = "there is a begin or an end without the other: mend the comments with crontab -e"
        raise ConfigurationError("crontab: lines of", config, fix)
    if not former:
        changed += (b"\n" if block and changed and not changed.endswith(b"\n") else b"") + block
    return changed, b"".join(former)


def _is_same(path: bytes, config: Path) -> bool:
    """Whether ``path`` is the file ``config``, even if it is spelled differently."""
    return os.path.realpath(path.strip()) == os.fsencode(os.path.realpath(config))


class UsersCrontab:
    """A user's crontab. Only the command ``crontab`` may read and replace it. CannotCreate if the command is missing or
    fails. PermissionDenied if it refuses this user."""

    def __init__(self, without: str = "install cron, or put what 'init cron' prints elsewhere") -> None:
        """``without``: the fix if there is no command ``crontab``."""
        program = shutil.which("crontab")
        if program is None:
            raise CannotCreate("crontab", "no such command", without)
        self._program = program

    def read(self) -> bytes:
        """The content of the crontab; empty if there is none."""
        done = self._run("-l")
        if done.returncode and ABSENT.search(done.stderr.decode("utf-8", "replace")):
            return b""
        self._refuse_failed(done)
        return done.stdout

    def replace(self, content: bytes) -> None:
        """Replace the crontab; if ``content`` is empty, remove it. Then read it to check that: not every ``crontab``
        reports a failure by its exit code."""
        self._refuse_failed(self._run("-", content=content) if content else self._run("-r"))
        found = self.read()
        if not found.endswith(content) or bool(found) != bool(content):  # some commands add a comment in front
            raise CannotCreate("crontab", "is not what was written", "look at it with crontab -l")

    def _run(self, argument: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        words, environment = [self._program, argument], os.environ | {"LC_ALL": "C"}
        try:
            return subprocess.run(
                words, input=content, capture_output=True, timeout=PATIENCE, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            raise CannotCreate("crontab", f"has not ended within {PATIENCE:g}s", "try crontab -l") from None
        except OSError as error:
            raise CannotCreate(self._program, error.strerror, "try crontab -l") from None

    def _refuse_failed(self, done: subprocess.CompletedProcess[bytes]) -> None:
        if done.returncode == 0:
            return
        message = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0].removeprefix("crontab: ")
        if "not allowed" in message:
            raise PermissionDenied("crontab", message, "see cron.allow and cron.deny") from None
        raise CannotCreate("crontab", message or f"ended with {done.returncode}", "try crontab -l and crontab -e")
