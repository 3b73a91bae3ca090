"""Finds the launcher that has started a process, and what it does at a tick while the launch before is alive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pollconsumer.core.choices import LauncherRule

REAPED_LATE = 11.0
"""Seconds. busybox's crond reaps ended processes every ten seconds, a little late, and only after testing for a due
tick."""
REAPED_LATE_BY_DCRON = 5.0
"""Seconds. dcron tests at the first second of a minute. It reaps five seconds after it wakes, then every ten
seconds."""
BUSYBOX = "busybox"
GIVES_UP = ("-n", "--nb", "--nonblock", "-w", "--wait", "--timeout")
"""Options of flock with which it does not wait for its lock, or not for long."""
OVERLAPS = ("-overlapping", "--overlapping")

DROP, QUEUE, PARALLEL = LauncherRule.DROP, LauncherRule.QUEUE, LauncherRule.PARALLEL
ON_DEMAND, ON_DEMAND_BY_URL = "on-demand", "on-demand-url"
BY_PRODUCERS = (ON_DEMAND, ON_DEMAND_BY_URL)
"""Platforms of launches that producers have started. How often they start one says nothing about a crontab."""
DEMANDED_VARIABLE = "_POLLCONSUMER_DEMANDED"
"""An environment variable that is no setting. In a launch that a producer started it names one of these platforms."""


class Ancestor(NamedTuple):
    """An ancestor of this process. ``executable``: the name of its file, without the directory; empty if unknown."""

    executable: str
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name by which the process was called: busybox is many programs in one file."""
        return self.command[0].rpartition("/")[2].lstrip("-") if self.command else self.executable

    def is_called(self, name: str) -> bool:
        """Whether the process or its file is called ``name``. The children of cron have its name in capitals."""
        return name in (self.name.lower(), self.executable.lower())

    def has_option(self, beginnings: tuple[str, ...]) -> bool:
        return any(word.startswith(beginnings) for word in self.command[1:])

    def is_applet(self, name: str) -> bool:
        """Whether the process is the applet ``name`` of busybox, called by a link or as ``busybox NAME``."""
        if self.name.startswith(BUSYBOX):
            return self.command[1:2] == (name,)
        return self.name == name and self.executable.startswith(BUSYBOX)


class Found(NamedTuple):
    """A launcher. ``platform`` is empty if it is unknown. ``reaped_late``: a process that ends less than these seconds
    before a tick still counts as alive at the tick. ``is_watched``: the rule depends on settings of the launcher, so it
    is a guess until launches have seen what the launcher does."""

    platform: str
    rule: LauncherRule
    reaped_late: float = 0.0
    is_watched: bool = False


UNKNOWN = Found("", PARALLEL, is_watched=True)

# The first that fits counts, so a specific launcher stands before the one that it runs on. Plain tuples make a start
# faster.
LAUNCHERS: tuple[tuple[Found, Callable[[Ancestor], bool]], ...] = (
    (Found("supercronic", PARALLEL), lambda it: it.is_called("supercronic") and it.has_option(OVERLAPS)),
    (Found("supercronic", DROP), lambda it: it.is_called("supercronic")),
    (Found("flock", DROP), lambda it: it.is_called("flock") and it.has_option(GIVES_UP)),
    (Found("flock", QUEUE), lambda it: it.is_called("flock")),
    (Found(BUSYBOX, DROP, REAPED_LATE), lambda it: it.is_applet("crond")),
    (Found("cron", PARALLEL), lambda it: it.is_called("cron") or it.name == "CROND"),
    (Found("dcron", DROP, REAPED_LATE_BY_DCRON), lambda it: it.name == "crond"),
    (Found("fcron", DROP), lambda it: it.is_called("fcron")),
    (Found("launchd", DROP), lambda it: it.is_called("launchd")),
)
"""Launchers, each with a function that says whether a process is that launcher."""
PLATFORMS = (
    (Found("kudu", DROP), "WEBJOBS_RUN_ID", "WEBJOBS_RUN_ID"),
    (Found("jenkins", PARALLEL, is_watched=True), "JENKINS_URL BUILD_TAG", "BUILD_TAG"),
    (Found("gitlab", PARALLEL, is_watched=True), "GITLAB_CI", "CI_JOB_ID"),
    (Found("github", PARALLEL), "GITHUB_RUN_ID", "GITHUB_RUN_ID"),
    (Found("heroku", DROP), "DYNO=scheduler.", "DYNO"),
    (Found("render", QUEUE), "RENDER=true", "RENDER_INSTANCE_ID"),
    (Found("railway", DROP), "RAILWAY_ENVIRONMENT_ID", ""),
    (Found("container-apps", PARALLEL), "CONTAINER_APP_JOB_NAME", "CONTAINER_APP_JOB_EXECUTION_NAME"),
    (Found("cloud-run", PARALLEL), "CLOUD_RUN_EXECUTION", "CLOUD_RUN_EXECUTION"),
    (Found("cloud-run", PARALLEL), "CLOUD_RUN_JOB", ""),
    (Found("cloud-run-service", PARALLEL), "K_SERVICE", ""),
    (Found("lambda", PARALLEL), "AWS_LAMBDA_FUNCTION_NAME", ""),
    (Found("ecs", PARALLEL), "ECS_CONTAINER_METADATA_URI_V4", "ECS_CONTAINER_METADATA_URI_V4"),
    (Found("nomad", DROP), "NOMAD_ALLOC_ID", "NOMAD_ALLOC_ID"),
    (Found("fly", PARALLEL, is_watched=True), "FLY_MACHINE_ID", ""),
    (Found("kubernetes", PARALLEL), "KUBERNETES_SERVICE_HOST JOB_NAME", "JOB_NAME"),
    (Found("systemd", QUEUE), "INVOCATION_ID", "INVOCATION_ID"),
    (Found("systemd", QUEUE), "TRIGGER_UNIT", ""),
    (Found("systemd", QUEUE), "JOURNAL_STREAM", ""),
)
"""Platforms. Each has the variables that are all set there, some with the beginning of their value. The last column is
the variable with the platform's own id of a run, or with a URL that ends in it, if there is one."""


def find_launcher(variables: Mapping[str, str], ancestors: Iterable[Ancestor]) -> Found:
    """The launcher of this process. It is a producer; else the nearest of the ``ancestors``, parent first, that is a
    launcher; else the platform whose environment ``variables`` are set."""
    if (demanded := variables.get(DEMANDED_VARIABLE)) in BY_PRODUCERS:
        return Found(demanded, PARALLEL)
    for ancestor in ancestors:
        for found, started in LAUNCHERS:
            if started(ancestor):
                return found
    return next((found for found, known_by, _ in PLATFORMS if is_here(known_by, variables)), UNKNOWN)


def is_here(known_by: str, variables: Mapping[str, str]) -> bool:
    """Whether a process with these ``variables`` runs on the platform that is ``known_by`` some of them."""
    for word in known_by.split():
        name, _, value = word.partition("=")
        if name not in variables or not variables[name].startswith(value):
            return False
    return True


def recorded_launcher(platform: str, rule: str) -> Found:
    """The launcher that an earlier launch found, from its entry in the ledger."""
    known = (*(row[0] for row in LAUNCHERS), *(row[0] for row in PLATFORMS))
    unlisted = Found(platform, PARALLEL) if platform else UNKNOWN
    found = next((each for each in known if each.platform == platform), unlisted)
    return found._replace(rule=LauncherRule(rule) if rule in [*LauncherRule] else PARALLEL)


def given_launcher(rule: LauncherRule, found: Found) -> Found:
    """``found``, with the ``rule`` of the settings. Its ``reaped_late`` stays, since it is a fact about the
    launcher."""
    return found if rule is LauncherRule.AUTO else found._replace(rule=rule)


def run_id(variables: Mapping[str, str]) -> str | None:
    """The platform's own id of this run, which its logs show."""
    names = (variables.get(run) for _, known_by, run in PLATFORMS if run and is_here(known_by, variables))
    return next((name.rpartition("/")[2] for name in names if name), None)
