"""Finds the launcher that has started a process, and what it does at a tick while the launch before is alive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pollconsumer.core.choices import LauncherRule

REAPED_LATE = 11.0
"""Seconds: busybox's crond tests whether a tick is due before it reaps, and reaps each ten seconds, a little late."""
BUSYBOX = "busybox"
RUN_IDS = (
    "WEBJOBS_RUN_ID",
    "BUILD_TAG",
    "INVOCATION_ID",
    "CLOUD_RUN_EXECUTION",
    "JOB_NAME",
    "NOMAD_ALLOC_ID",
    "GITHUB_RUN_ID",
)
"""Variables with the platform's own name of a run, by precedence. BUILD_TAG names a run in Jenkins only; JOB_NAME in
Kubernetes only, though Jenkins sets it, too."""
GIVES_UP = ("-n", "--nb", "--nonblock", "-w", "--wait", "--timeout")
"""Options of flock with which it does not wait for its lock, or not for long."""


class Ancestor(NamedTuple):
    """A process from which this one descends. ``executable``: the file's own name, without its directory; empty if
    unknown."""

    executable: str
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name by which it was called: busybox is many programs in one file."""
        return self.command[0].rpartition("/")[2].lstrip("-") if self.command else self.executable


class Found(NamedTuple):
    """A launcher. ``platform`` is empty if it is unknown. ``reaped_late``: a process that ends less than these seconds
    before a tick still counts as alive at the tick."""

    platform: str
    rule: LauncherRule
    reaped_late: float = 0.0


UNKNOWN = Found("", LauncherRule.PARALLEL)


def find_launcher(variables: Mapping[str, str], ancestors: Iterable[Ancestor]) -> Found:
    """The nearest of the ``ancestors``, parent first, that is a launcher; else the platform whose ``variables`` of the
    environment are set."""
    for ancestor in ancestors:
        if found := _launcher(ancestor):
            return found
    if "WEBJOBS_RUN_ID" in variables:
        return Found("kudu", LauncherRule.DROP)
    if "NOMAD_ALLOC_ID" in variables:
        return Found("nomad", LauncherRule.DROP)
    if "CLOUD_RUN_JOB" in variables or "CLOUD_RUN_EXECUTION" in variables:
        return Found("cloud-run", LauncherRule.PARALLEL)
    if _is_kubernetes_job(variables):
        return Found("kubernetes", LauncherRule.PARALLEL)
    if any(name in variables for name in ("TRIGGER_UNIT", "INVOCATION_ID", "JOURNAL_STREAM")):
        return Found("systemd", LauncherRule.QUEUE)
    if "GITHUB_RUN_ID" in variables:
        return Found("github", LauncherRule.PARALLEL)
    return UNKNOWN


def recorded_launcher(platform: str, rule: str) -> Found:
    """The launcher that an earlier launch had found, from its entry in the ledger."""
    known = rule if rule in [*LauncherRule] else LauncherRule.PARALLEL
    return Found(platform, LauncherRule(known), REAPED_LATE if platform == BUSYBOX else 0.0)


def given_launcher(rule: LauncherRule, found: Found) -> Found:
    """``found``, with the ``rule`` of the settings: a launcher that reaps late does so, whoever says that it drops."""
    return found if rule is LauncherRule.AUTO else found._replace(rule=rule)


def run_id(variables: Mapping[str, str]) -> str | None:
    """The platform's name of this run, by which its own logs know it."""
    for name in RUN_IDS:
        only = {"JOB_NAME": _is_kubernetes_job, "BUILD_TAG": _is_jenkins}.get(name)
        if variables.get(name) and (only is None or only(variables)):
            return variables[name]
    return None


def _is_kubernetes_job(variables: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in variables and "JOB_NAME" in variables and not _is_jenkins(variables)


def _is_jenkins(variables: Mapping[str, str]) -> bool:
    """Whether Jenkins runs this, perhaps in Kubernetes. Its JOB_NAME is the same for all builds."""
    return "JENKINS_URL" in variables and "BUILD_TAG" in variables


def _launcher(ancestor: Ancestor) -> Found | None:
    names, options = {ancestor.name.lower(), ancestor.executable.lower()}, ancestor.command[1:]
    if "supercronic" in names:
        overlaps = "-overlapping" in options or "--overlapping" in options
        return Found("supercronic", LauncherRule.PARALLEL if overlaps else LauncherRule.DROP)
    if "flock" in names:
        gives_up = any(option.startswith(GIVES_UP) for option in options)
        return Found("flock", LauncherRule.DROP if gives_up else LauncherRule.QUEUE)
    if names == {"crond", "busybox"} or (BUSYBOX in names and options[:1] == ("crond",)):
        return Found(BUSYBOX, LauncherRule.DROP, REAPED_LATE)
    if names & {"cron", "crond"}:
        return Found("cron", LauncherRule.PARALLEL)
    return None
