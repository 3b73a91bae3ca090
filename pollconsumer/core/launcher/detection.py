"""Finds the launcher that has started a process, and what it does at a tick while the launch before is alive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pollconsumer.core.choices import LauncherRule

REAPED_LATE = 11.0
"""Seconds: busybox's crond tests whether a tick is due before it reaps, and reaps each ten seconds, a little late."""
REAPED_LATE_BY_DCRON = 5.0
"""Seconds: dcron tests at the first second of a minute, and reaps five seconds after it wakes, each ten seconds."""
BUSYBOX = "busybox"
GIVES_UP = ("-n", "--nb", "--nonblock", "-w", "--wait", "--timeout")
"""Options of flock with which it does not wait for its lock, or not for long."""
OVERLAPS = ("-overlapping", "--overlapping")

DROP, QUEUE, PARALLEL = LauncherRule.DROP, LauncherRule.QUEUE, LauncherRule.PARALLEL
WATCHED = LauncherRule.AUTO
"""The rule of a platform whose own settings decide what it does: launches watch it, as they do an unknown launcher."""


class Ancestor(NamedTuple):
    """A process from which this one descends. ``executable``: the file's own name, without its directory; empty if
    unknown."""

    executable: str
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name by which it was called: busybox is many programs in one file."""
        return self.command[0].rpartition("/")[2].lstrip("-") if self.command else self.executable

    def is_called(self, name: str) -> bool:
        """Whether ``name`` is its name or its file's. cron's children have the name in capitals."""
        return name in (self.name.lower(), self.executable.lower())

    def has_option(self, beginnings: tuple[str, ...]) -> bool:
        return any(word.startswith(beginnings) for word in self.command[1:])

    def is_applet(self, name: str) -> bool:
        """Whether it is ``name`` of busybox, by a link or as ``busybox NAME``."""
        if self.name.startswith(BUSYBOX):
            return self.command[1:2] == (name,)
        return self.name == name and self.executable.startswith(BUSYBOX)


class KnownLauncher(NamedTuple):
    """A process that launches. ``started``: whether an ancestor is it. ``reaped_late``: a process that ends less than
    these seconds before a tick still counts as alive at the tick."""

    platform: str
    rule: LauncherRule
    started: Callable[[Ancestor], bool]
    reaped_late: float = 0.0


class KnownPlatform(NamedTuple):
    """A place that is known by variables of its environment. ``known_by``: variables that are all set there, some with
    the beginning of their value. ``run``: the variable with the platform's own name of a run, or a URL that ends in it;
    empty if there is none."""

    name: str
    rule: LauncherRule
    known_by: str
    run: str = ""

    def is_here(self, variables: Mapping[str, str]) -> bool:
        wanted = (word.partition("=") for word in self.known_by.split())
        return all(name in variables and variables[name].startswith(value) for name, _, value in wanted)


# The first that fits counts: what is more specific stands before what it runs on.
LAUNCHERS = (
    KnownLauncher("supercronic", PARALLEL, lambda it: it.is_called("supercronic") and it.has_option(OVERLAPS)),
    KnownLauncher("supercronic", DROP, lambda it: it.is_called("supercronic")),
    KnownLauncher("flock", DROP, lambda it: it.is_called("flock") and it.has_option(GIVES_UP)),
    KnownLauncher("flock", QUEUE, lambda it: it.is_called("flock")),
    KnownLauncher(BUSYBOX, DROP, lambda it: it.is_applet("crond"), REAPED_LATE),
    KnownLauncher("cron", PARALLEL, lambda it: it.is_called("cron") or it.name == "CROND"),
    KnownLauncher("dcron", DROP, lambda it: it.name == "crond", REAPED_LATE_BY_DCRON),
    KnownLauncher("fcron", DROP, lambda it: it.is_called("fcron")),
    KnownLauncher("launchd", DROP, lambda it: it.is_called("launchd")),
)
PLATFORMS = (
    KnownPlatform("kudu", DROP, "WEBJOBS_RUN_ID", run="WEBJOBS_RUN_ID"),
    KnownPlatform("jenkins", WATCHED, "JENKINS_URL BUILD_TAG", run="BUILD_TAG"),
    KnownPlatform("gitlab", WATCHED, "GITLAB_CI", run="CI_JOB_ID"),
    KnownPlatform("github", PARALLEL, "GITHUB_RUN_ID", run="GITHUB_RUN_ID"),
    KnownPlatform("heroku", DROP, "DYNO=scheduler.", run="DYNO"),
    KnownPlatform("render", QUEUE, "RENDER", run="RENDER_INSTANCE_ID"),
    KnownPlatform("railway", DROP, "RAILWAY_ENVIRONMENT_ID"),
    KnownPlatform("container-apps", PARALLEL, "CONTAINER_APP_JOB_NAME", run="CONTAINER_APP_JOB_EXECUTION_NAME"),
    KnownPlatform("cloud-run", PARALLEL, "CLOUD_RUN_EXECUTION", run="CLOUD_RUN_EXECUTION"),
    KnownPlatform("cloud-run", PARALLEL, "CLOUD_RUN_JOB"),
    KnownPlatform("cloud-run-service", PARALLEL, "K_SERVICE"),
    KnownPlatform("lambda", PARALLEL, "AWS_LAMBDA_FUNCTION_NAME"),
    KnownPlatform("ecs", PARALLEL, "ECS_CONTAINER_METADATA_URI_V4", run="ECS_CONTAINER_METADATA_URI_V4"),
    KnownPlatform("nomad", DROP, "NOMAD_ALLOC_ID", run="NOMAD_ALLOC_ID"),
    KnownPlatform("fly", WATCHED, "FLY_MACHINE_ID"),
    KnownPlatform("kubernetes", PARALLEL, "KUBERNETES_SERVICE_HOST JOB_NAME", run="JOB_NAME"),
    KnownPlatform("systemd", QUEUE, "INVOCATION_ID", run="INVOCATION_ID"),
    KnownPlatform("systemd", QUEUE, "TRIGGER_UNIT"),
    KnownPlatform("systemd", QUEUE, "JOURNAL_STREAM"),
)


class Found(NamedTuple):
    """A launcher. ``platform`` is empty if it is unknown. ``reaped_late``: see `KnownLauncher`. ``is_watched``: its
    rule is a guess until launches have seen what it does."""

    platform: str
    rule: LauncherRule
    reaped_late: float = 0.0
    is_watched: bool = False


UNKNOWN = Found("", PARALLEL, is_watched=True)


def find_launcher(variables: Mapping[str, str], ancestors: Iterable[Ancestor]) -> Found:
    """The nearest of the ``ancestors``, parent first, that is a launcher; else the platform whose ``variables`` of the
    environment are set."""
    for ancestor in ancestors:
        for launcher in LAUNCHERS:
            if launcher.started(ancestor):
                return Found(launcher.platform, launcher.rule, launcher.reaped_late)
    for platform in PLATFORMS:
        if platform.is_here(variables):
            is_watched = platform.rule is WATCHED
            return Found(platform.name, PARALLEL if is_watched else platform.rule, is_watched=is_watched)
    return UNKNOWN


def recorded_launcher(platform: str, rule: str) -> Found:
    """The launcher that an earlier launch had found, from its entry in the ledger."""
    known = LauncherRule(rule) if rule in [*LauncherRule] else PARALLEL
    reaped_late = max((each.reaped_late for each in LAUNCHERS if each.platform == platform), default=0.0)
    is_watched = any(each.rule is WATCHED for each in PLATFORMS if each.name == platform)
    return Found(platform, known, reaped_late, is_watched or not platform)


def given_launcher(rule: LauncherRule, found: Found) -> Found:
    """``found``, with the ``rule`` of the settings: a launcher that reaps late does so, whoever says that it drops."""
    return found if rule is LauncherRule.AUTO else found._replace(rule=rule)


def run_id(variables: Mapping[str, str]) -> str | None:
    """The platform's name of this run, by which its own logs know it."""
    names = (variables.get(each.run) for each in PLATFORMS if each.run and each.is_here(variables))
    return next((name.rpartition("/")[2] for name in names if name), None)
