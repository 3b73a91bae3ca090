"""Loads what settings name for launches: handlers of modules, programs and recurrences."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.errors import BadData, ConfigurationError, retelling
from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.spans import format_duration
from pollconsumer.interface.api.registry import RegisteredHandler, location_of, registry
from pollconsumer.interface.api.slips import BY_QUEUE, check_arguments, refuse_handler
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.load import DJANGO_VARIABLE, NO_HANDLERS, django_site
from pollconsumer.interface.settings.model import CommandSettings, Settings
from pollconsumer.interface.settings.owners import refuse_writable_program
from pollconsumer.interface.settings.reading import backoff_of, check_recurrence, recurrence_by
from pollconsumer.interface.settings.values import BESIDE_WINDOW
from pollconsumer.interface.user_imports import find_modules, importing
from pollconsumer.runtime.handling.handler import Handler, begin_reading, with_hooks
from pollconsumer.runtime.new_messages import Defaults
from pollconsumer.runtime.system.process import why_not_run

if TYPE_CHECKING:
    from pollconsumer.core.recurrence import Recurrence
    from pollconsumer.runtime.children.command import Command, Programs

PARTS = {
    "LaunchAlarms": "pollconsumer.watching.alarms",
    "closing_connections": "pollconsumer.django.connections",
    "form_of": "pollconsumer.watching.alarms",
    "import_site": "pollconsumer.django.site",
    "installed_queues": "pollconsumer.platform_files.crontabs",
    "installed_schedule": "pollconsumer.platform_files.crontabs",
    "telling_outcome": "pollconsumer.web.launch_outcome",
    "write_at_end": "pollconsumer.dashboard.at_end",
}
"""Function of an optional package → its module."""
NO_POLICIES = "a program has no named policies: set retry in its table"
NEAR = 0.9
"""A handler may outlast the window if its longest measured duration exceeds this share of the window."""


def optional_part(name: str) -> Any:
    """The function ``name`` of `PARTS`, imported now."""
    return getattr(import_module(PARTS[name]), name)


def load_handlers(settings: Settings, programs: Programs | None = None) -> dict[str, Handler]:
    """Handlers by name, from the modules and commands in ``settings``. ``programs``: records the processes of commands.
    ConfigurationError for a handler that cannot be imported or run."""
    handlers = import_handlers(settings)
    if settings.commands:
        for name, handler in load_commands(settings, programs or running_programs(settings)).items():
            if name in handlers:
                location = location_of(registry.handlers()[name].function)
                locations = f"as a function at {location} and as a command in the configuration"
                raise ConfigurationError("handler registered twice", name, f"{locations}; rename one")
            handlers[name] = handler
    return handlers


def import_handlers(settings: Settings) -> dict[str, Handler]:
    """Handlers by name, from the modules in ``settings`` and from the Django site. ConfigurationError for a module that
    cannot be imported.

    The directory of the configuration file is put first on sys.path. A ``PollConsumer()`` in the modules uses
    ``settings``."""
    registry.settings = settings
    begin_reading()
    site = django_site()
    if modules := settings.handlers if site is None else (site, *settings.handlers):
        find_modules(settings, modules)
    if site is not None:
        try:
            import_site = optional_part("import_site")
        except ImportError as error:
            raise ConfigurationError(DJANGO_VARIABLE, site, f"{error}, or unset the variable") from None
        import_site(site, settings)
    for module in settings.handlers:
        _import(module)
    handlers = {name: with_hooks(each.definition, each.hooks) for name, each in registry.handlers().items()}
    registry.imported = {*handlers, *settings.commands} if modules or settings.commands else None
    # The user's modules may have configured Django themselves, and imported its database.
    configured = "django.db" in sys.modules and sys.modules["django.conf"].settings.configured
    if not (site or configured) or registry.stand_in is not None:
        return handlers  # a test's connections have a transaction of their own
    closing_connections = optional_part("closing_connections")
    return {name: handler.wrapped(closing_connections) for name, handler in handlers.items()}


def _import(module: str) -> None:
    """Import a module of handlers. ConfigurationError if Python's own module of that name was imported instead."""
    with importing("handlers", module):
        found = getattr(import_module(module), "__file__", None) or os.__file__
    if module in sys.stdlib_module_names and Path(found).is_relative_to(Path(os.__file__).parent):
        raise ConfigurationError("handlers", module, "Python has a module of this name: rename yours")


def configured_recurrences(settings: Settings) -> dict[str, Recurrence]:
    """The recurrences that the next launch will define, by name. Raises the errors of `load_recurrences`."""
    return {each.name: each for each in load_recurrences(settings, load_handlers(settings))}


def load_recurrences(settings: Settings, handlers: Mapping[str, Handler]) -> list[Recurrence]:
    """The recurrences of the configuration and of the imported modules. If both define a name, the configuration's
    counts. ConfigurationError for an invalid one."""
    recurrences = []
    for name, given in (registry.recurrences() | settings.recurrences).items():
        handler = handlers.get(given.handler)
        defaults = Defaults() if handler is None else handler.defaults
        with retelling(ValueError, ConfigurationError, f"recurrences.{name}: "):
            check_recurrence(name, given)
            wanted = handler is not None and handler.takes_occurrence
            recurrences.append(recurrence_by(given, name, settings.namespace, defaults, occurrence_wanted=wanted))
    return recurrences


class OwnDefaults:
    """Default options and checks of handlers, for messages that the command line enqueues. The configured
    modules are imported once, when the first handler needs them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._imported: Mapping[str, RegisteredHandler] | None = None
        self._warned = False

    def warn_without_handlers(self) -> None:
        """Warn once if launches of the configuration file have no handlers."""
        settings = self._settings
        if settings.config and not (self._warned or settings.handlers or settings.commands or django_site()):
            self._warned = True
            log.warning("%s", NO_HANDLERS)

    def of(self, handler: str) -> Defaults:
        """The default options of ``handler``'s messages. For an unknown handler the queue is ``default``.
        ConfigurationError if the modules cannot be imported."""
        registered = self.registered(handler)
        return self._settings.defaults_of(handler) if registered is None else registered.definition.defaults

    def registered(self, handler: str) -> RegisteredHandler | None:
        """``handler`` as it is registered. None if it is unknown, or a program. Raises the errors of `of`."""
        if handler in self._settings.commands or not (self._settings.handlers or django_site()):
            return None
        if self._imported is None:
            try:
                import_handlers(self._settings)
            except ConfigurationError as error:
                refusal = ConfigurationError(f"{error}; or name the queue: then no module is imported")
                refusal.traced = error.traced
                raise refusal from None
            self._imported = registry.handlers()
        return self._imported.get(handler)

    def checked(
        self, handler: str, payload: Mapping[str, Any], retry: str | None = None, fix: str = BY_QUEUE
    ) -> RegisteredHandler | None:
        """``handler`` as `function` returns it, with its errors. BadData if launches of this configuration would refuse
        the arguments of its message, or its ``retry``."""
        known = self.function(handler, fix)
        if known is not None:
            check_arguments(known, payload, retry)
        elif retry is not None and handler in self._settings.commands:
            raise BadData("retry", repr(retry), NO_POLICIES)
        return known

    def function(self, handler: str, fix: str = BY_QUEUE) -> RegisteredHandler | None:
        """``handler`` as it is registered. None for a program, or if the configuration has neither handlers nor
        programs. BadData for any other handler; ``fix``: what that error advises. Raises the errors of `of`, too."""
        known, programs = self.registered(handler), self._settings.commands
        if known is None and handler not in programs and (self._imported is not None or programs):
            refuse_handler(handler, {*(self._imported or ()), *programs}, fix)
        return known


class LongHandler(NamedTuple):
    """A handler that may take ``most`` seconds. ``waiting``: queues whose messages wait while this handler runs."""

    name: str
    queue: str
    most: float
    waiting: tuple[str, ...]

    def __str__(self) -> str:
        own = self.queue not in self.waiting
        queue = self.queue if own else self.name
        needed, first = ("a crontab line", "") if own else ("a queue and a crontab line", f'queue="{queue}", then ')
        return (
            f"{self.name} may take {format_duration(self.most)}: other messages of {', '.join(self.waiting)} wait "
            f"meanwhile; {needed} of its own would let them pass: "
            f"{first}'pollconsumer init cron --install --queue {queue}'"
        )


def long_handlers(
    handlers: Mapping[str, Handler],
    queues: Sequence[str],
    window: float,
    measured: Mapping[str, float],
    programs: Mapping[str, CommandSettings] = MappingProxyType({}),
    slots: int = 1,
) -> Iterator[LongHandler]:
    """Yield the handlers that may outlast the window of a launch that serves ``queues``: their timeout is longer than
    ``window``, or their longest ``measured`` duration nearly as long, in seconds. Handlers that keep no other message
    waiting are left out; if there are several ``slots``, none keeps any waiting. ``programs``: the handlers that are
    programs, by name."""
    if slots > 1:
        return
    served = {each.name: each for each in handlers.values() if each.queue in queues}
    for name, each in sorted(served.items()):
        declared, took = (programs[name].timeout if name in programs else each.timeout) or 0.0, measured.get(name, 0.0)
        most = max(declared if declared > window else 0.0, took if took >= NEAR * window else 0.0)
        beside = any(other.queue == each.queue for other in served.values() if other.name != name)
        waiting = tuple(queue for queue in queues if queue != each.queue or beside)
        if most and waiting:
            yield LongHandler(name, each.queue, round(most, 1), waiting)


def beyond_requests(handlers: Mapping[str, Handler], settings: Settings) -> dict[str, str]:
    """Handler → what to do about it, for handlers whose timeout is longer than the window of a launch that a URL
    starts. Such a launch leaves their messages alone. Empty if no URL starts launches."""
    window, found = settings.web.budget - BESIDE_WINDOW, dict[str, str]()
    for each in handlers.values() if settings.web.token is not None else ():
        timeout = each.timeout
        if timeout is not None and timeout != settings.consumer.handler_limit and timeout > window:
            found[each.name] = (
                f"{each.name}: timeout {format_duration(timeout)} is longer than the {format_duration(window)} of a "
                "launch by a URL; raise web.budget, start 'pollconsumer run' by cron, or lower the timeout"
            )
    return found


def load_commands(settings: Settings, programs: Programs) -> dict[str, Handler]:
    """The handlers that are programs. ConfigurationError for a program that cannot be run."""
    from pollconsumer.runtime.children.command import Command  # few configurations have programs

    handlers = {}
    for name, command in settings.commands.items():
        directory = settings.directory / (command.directory or "")
        if not os.path.isdir(directory):  # noqa: PTH112  those of os.path do not raise in a directory of others
            problem = errno.ENOTDIR if os.path.exists(directory) else errno.ENOENT  # noqa: PTH110  as above
            raise ConfigurationError(f"commands.{name}.directory", directory, _described(problem))
        program = _program(name, command.command[0], settings.directory)
        if not settings.trust_writable:
            refuse_writable_program(Path(program))
        run = Command(
            (program, *command.command[1:]),
            programs,
            directory=directory,
            timeout=command.timeout or settings.consumer.handler_limit,
            kill_after=command.kill_after,
            fatal=command.fatal,
            environment=command.environment,
        )
        handlers[name] = _handler_of(name, run, command)
    return handlers


def _handler_of(name: str, run: Command, command: CommandSettings) -> Handler:
    return Handler(
        name,
        run,
        command.max_attempts,
        backoff_of(command.retry),
        queue=command.queue,
        rate=command.rate,
        rate_key=command.rate_key,
        takes_context=True,
        timeout=run.timeout,
        timed=lambda seconds: _handler_of(name, run.with_timeout(seconds), command),
    )


def running_programs(settings: Settings) -> Programs:
    """Records which programs are running, for this store and namespace, in the state directory. If ``state`` is
    ``none``, nothing is recorded."""
    from pollconsumer.runtime.children.command import Programs  # as for Command

    store = str(settings.data_directory()) if settings.is_embedded else settings.shown_store
    name = sha256(f"{store}\n{settings.namespace}".encode())[:32]
    files = settings.state_files()
    location = files.writable_directory() or next(iter(files.directories), None)
    return Programs(None if location is None else location / "programs" / name, log.warning)


def _program(name: str, word: str, directory: Path) -> str:
    """The absolute path of the program ``word``, found by PATH, or relative to ``directory``, the configuration's."""
    if "/" in word:
        path = directory / word
        problem = why_not_run(path)
        if problem:
            raise ConfigurationError(f"commands.{name}.command", path, _described(problem))
        return str(path)
    locations = os.environ.get("PATH", os.defpath)
    for location in filter(os.path.isabs, locations.split(os.pathsep)):
        problem = why_not_run(Path(location, word))
        if not problem:
            return str(Path(location, word))
        if problem not in (errno.ENOENT, errno.ENOTDIR):
            raise ConfigurationError(f"commands.{name}.command", Path(location, word), _described(problem))
    raise ConfigurationError(f"commands.{name}.command", word, f"{_described(errno.ENOENT)} in any directory of PATH")


def _described(problem: int) -> str:
    return f"{os.strerror(problem)} (errno {problem})"
