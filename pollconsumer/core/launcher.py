"""Finds the launcher that started this process, and learns from the ledger how it behaves.

Two things are learned. The first is how long after its tick a launch starts, and how long after its end its process
exits: the next deadline allows for both. The second is what the launcher does at a tick while a launch still runs; it
counts only if the launcher is unknown or has a setting for that (`Found.is_watched`). All times are in seconds."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

from pollconsumer.core import json_values
from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.window import OUR_OWN

REAPED_LATE = 11.0
"""Seconds. busybox's crond reaps ended processes only after it has tested for a tick, about every ten seconds."""
REAPED_LATE_BY_DCRON = 5.0
"""Seconds. dcron tests for a tick in the first second of a minute. It reaps 5 s after it wakes, then every 10 s."""
BUSYBOX = "busybox"
GIVES_UP = ("-n", "--nb", "--nonblock", "-w", "--wait", "--timeout")
"""Options of flock with which it does not wait for its lock, or waits only for a time."""
OVERLAPS = ("-overlapping", "--overlapping")

DROP, QUEUE, PARALLEL = LauncherRule.DROP, LauncherRule.QUEUE, LauncherRule.PARALLEL
ON_DEMAND, ON_DEMAND_BY_URL = "on-demand", "on-demand-url"
BY_PRODUCERS = (ON_DEMAND, ON_DEMAND_BY_URL)
"""Platforms of launches that producers start. How often producers start one says nothing about a crontab."""
DEMANDED_VARIABLE = "_POLLCONSUMER_DEMANDED"
"""An environment variable, no setting. A producer that starts a launch sets it to one of `BY_PRODUCERS`."""


class Ancestor(NamedTuple):
    """An ancestor of this process. ``executable``: the name of its file, without the directory; empty if unknown."""

    executable: str
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name by which the process was called, perhaps not its file's: busybox is many programs in one file."""
        return self.command[0].rpartition("/")[2].lstrip("-") if self.command else self.executable

    def is_called(self, name: str) -> bool:
        """Whether the process or its file is called ``name``, upper case or lower: cron's children are called CRON."""
        return name in (self.name.lower(), self.executable.lower())

    def has_option(self, beginnings: tuple[str, ...]) -> bool:
        return any(word.startswith(beginnings) for word in self.command[1:])

    def is_applet(self, name: str) -> bool:
        """Whether the process is the applet ``name`` of busybox, called by a link or as ``busybox NAME``."""
        if self.name.startswith(BUSYBOX):
            return self.command[1:2] == (name,)
        return self.name == name and self.executable.startswith(BUSYBOX)


class Found(NamedTuple):
    """A launcher. ``platform``: its name; empty if unknown. ``reaped_late``: the launcher still takes a process for
    alive if it ended less than so many seconds before the tick. ``is_watched``: settings of the launcher determine the
    rule, so the rule is a guess until launches have observed what the launcher does."""

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
"""Platforms. The second column: the variables that are all set there, some with the beginning of their value. The
third: the variable with the platform's id of a run, or with a URL that ends in that id; empty if there is none."""


def find_launcher(variables: Mapping[str, str], ancestors: Iterable[Ancestor]) -> Found:
    """The launcher of this process: the producer that started it, if one did; else the nearest of the ``ancestors``
    (parent first) that is a known launcher; else the platform that the environment ``variables`` show."""
    if (demanded := variables.get(DEMANDED_VARIABLE)) in BY_PRODUCERS:
        return Found(demanded, PARALLEL)
    for ancestor in ancestors:
        for found, started in LAUNCHERS:
            if started(ancestor):
                return found
    return next((found for found, known_by, _ in PLATFORMS if is_here(known_by, variables)), UNKNOWN)


def is_here(known_by: str, variables: Mapping[str, str]) -> bool:
    """Whether a process with these environment ``variables`` runs on the platform that ``known_by`` describes: names of
    variables that are set there, some as NAME=BEGINNING of their value."""
    for word in known_by.split():
        name, _, value = word.partition("=")
        if name not in variables or not variables[name].startswith(value):
            return False
    return True


def recorded_launcher(platform: str, rule: str) -> Found:
    """The launcher that an earlier launch found: ``platform`` and ``rule`` come from its entry in the ledger."""
    known = (*(row[0] for row in LAUNCHERS), *(row[0] for row in PLATFORMS))
    unlisted = Found(platform, PARALLEL) if platform else UNKNOWN
    found = next((each for each in known if each.platform == platform), unlisted)
    return found._replace(rule=LauncherRule(rule) if rule in [*LauncherRule] else PARALLEL)


def given_launcher(rule: LauncherRule, found: Found) -> Found:
    """``found``, with ``rule`` in place of its own rule unless ``rule`` is ``auto``."""
    return found if rule is LauncherRule.AUTO else found._replace(rule=rule)


def run_id(variables: Mapping[str, str]) -> str | None:
    """The id that the platform gave this run and shows in its logs. None if unknown."""
    names = (variables.get(run) for _, known_by, run in PLATFORMS if run and is_here(known_by, variables))
    return next((name.rpartition("/")[2] for name in names if name), None)


LONGEST = 3600.0
"""Seconds. A longer offset, exit time or wait for the next tick in the ledger is ignored: it is corrupt or useless."""
TIMES = 3
"""So many launches in succession must observe the same rule before it counts: a suspended machine, too, starts none."""
SOON = 3.0
"""A launcher with the rule ``queue`` starts the next launch within so many seconds after the end of the running one. A
launch that starts later may not have waited for that end. A launch may also end by itself so soon after a tick, just
before a late launcher starts the next one: that does not show that the launcher waited."""
PERIODS = 2
"""A launcher that drops a tick starts another launch within this number of periods, since a launch with a baton is
alive at two ticks. If it takes longer, the machine was suspended, or the launcher was stopped."""
LAUNCHES = 10
"""Number of launches from which punctuality is learned."""
FLOOR = 0.25
"""Seconds that the margin has beyond the longest exit time. If a launch ends too late, the next one has to wait."""
FLOOR_OF_DROP = 0.5
"""The least margin where ticks are dropped: the launcher needs time to notice that the process has ended."""
OF_EXIT = 0.25
"""The margin where ticks are dropped, as a share of the longest exit time seen: a busy machine may exceed that time."""
UNLEARNED_EXIT = 1.75


class Past(NamedTuple):
    """An earlier launch. Instants are in seconds of the server's clock, spans in seconds; None if unknown. ``offset``:
    from its tick to its start. ``next_tick``: from its start to the following tick. ``exit``: from its recorded end to
    the end of its process. ``observed``: its `Observed`, as stored."""

    started: float | None
    ended: float | None
    offset: float | None
    next_tick: float | None
    exit: float | None
    observed: object

    @property
    def gone(self) -> float | None:
        """The end of the launch's process; None if it is unknown."""
        return None if self.ended is None else self.ended + (self.exit or 0.0)

    def waited_for(self, before: Self) -> bool:
        """Whether ``before`` was, or may have been, alive at this launch's tick. A launcher that queues has then
        started this launch only when ``before`` had ended."""
        if self.started is None or self.offset is None or before.gone is None:
            return True
        return before.gone > self.started - self.offset


def past_launches(entries: Iterable[bytes], group: str, own: str = "") -> list[Past]:
    """The launches of ``group`` in the ledger's ``entries``, newest first, without corrupt ones and ``own``."""
    found = []
    for text in entries:
        entry = json_values.object_in(text) or {}
        if str(entry.get("lineage")).rpartition(":")[0] == group and not (own and entry.get("launch_id") == own):
            found.append(past_launch(entry))
    return found


def past_launch(entry: dict[str, Any]) -> Past:
    return Past(
        _instant(entry.get("started_ms")),
        _instant(entry.get("ended_ms")),
        _span(entry.get("launch_offset_seconds")),
        _span(entry.get("next_tick_seconds")),
        _span(entry.get("exit_seconds")),
        entry.get("observed"),
    )


def _span(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LONGEST else None


def _instant(value: object) -> float | None:
    return value / 1000 if type(value) is int and value.bit_length() < 64 else None


class Observed(NamedTuple):
    """What the launcher did at a tick while a launch was alive, and how many ``times`` in succession it did so until
    now. AUTO: nothing was observed yet."""

    rule: LauncherRule = LauncherRule.AUTO
    times: int = 0

    @property
    def decides(self) -> LauncherRule:
        return self.rule if self.times >= TIMES else LauncherRule.PARALLEL


def observed(before: Past | None, started: float, offset: float | None, least_offset: float) -> Observed:
    """What launches have observed: what ``before``, the previous launch, recorded, and what this launch's start adds to
    that. ``started``: the start's instant by the server's clock. ``offset``: how many seconds after its tick this
    launch started; None if unknown. ``least_offset``: the least offset known."""
    if before is None:
        return Observed()
    noted, rule = read_observed(before.observed), _at_the_tick(before, started, offset, least_offset)
    if rule is None:
        return noted
    return Observed(rule, noted.times + 1 if rule is noted.rule else 1)


def read_observed(value: object) -> Observed:
    match value:
        case [str(rule), int(times)] if rule in [*LauncherRule] and times >= 0:
            return Observed(LauncherRule(rule), times)
    return Observed()


def _at_the_tick(before: Past, now: float, now_offset: float | None, least_offset: float) -> LauncherRule | None:
    """What the launcher did at the tick that followed the start of ``before``. ``now`` and ``now_offset``: start and
    offset of this launch. None if unknown, or if ``before`` had ended before that tick."""
    started, ended, offset, next_tick, *_ = before
    gone = before.gone
    if started is None or ended is None or gone is None or offset is None or next_tick is None or now_offset is None:
        return None
    if now < ended:
        return LauncherRule.PARALLEL
    tick, period = started + next_tick, next_tick + offset
    if gone < tick + max(0.0, least_offset):
        return None
    late = now - now_offset - tick  # from that tick to the one at which the launch after it was due
    if late < OUR_OWN:
        waited = gone > tick + max(0.0, least_offset) + SOON
        return LauncherRule.QUEUE if waited and now <= gone + SOON else None
    return LauncherRule.DROP if late < PERIODS * period + OUR_OWN else None


class Punctuality(NamedTuple):
    """How late launches start and exit. ``offset``: the least time from a tick to the start of its launch. ``exit``:
    the longest time from the recorded end of a launch to the end of its process."""

    offset: float = 0.0
    exit: float = UNLEARNED_EXIT


def punctuality_of(offsets: Collection[float], exits: Collection[float], own: float | None) -> Punctuality:
    """The punctuality that follows from the offsets and exit times of the last launches. This launch's ``own`` offset
    counts only if it is less: a person may have started this launch."""
    least = min(offsets, default=0.0)
    return Punctuality(least if own is None else min(least, own), max(exits, default=UNLEARNED_EXIT))


def learned(past: Sequence[Past], rule: LauncherRule, own: float | None = None, least_exit: float = 0.0) -> Punctuality:
    """The punctuality of ``past`` launches, newest first, and of this one, by its ``own`` offset. Where ticks are
    dropped, the exit time is at least ``least_exit``, since there a longer exit is cut off and cannot be measured.

    Under ``queue`` a launch that waited for the previous one is left out: its offset includes that wait. If it counted,
    each launch would end later than the previous one."""
    prompt = [each for each, before in pairwise(past) if not each.waited_for(before)]
    counting = prompt if rule is LauncherRule.QUEUE else past
    offsets = [each.offset for each in counting if each.offset is not None][:LAUNCHES]
    exits = [each.exit for each in past if each.exit is not None][:LAUNCHES]
    found = punctuality_of(offsets, exits, own)
    return found._replace(exit=max(found.exit, least_exit)) if rule is LauncherRule.DROP else found


def allowance(found: Found, punctuality: Punctuality, min_margin: float | None) -> tuple[float, float]:
    """Two times in seconds, for a launch that the launcher ``found`` started: from the next tick to the instant by
    which the launch must have stopped (negative: before the tick); and its least margin. ``min_margin``: the setting;
    None to learn the margin.

    Where ticks are dropped, the process must be gone before the tick, however long its last message takes. So its exit
    is no part of the margin. Elsewhere only the work must be over when the next launch starts."""
    if found.rule is LauncherRule.DROP:
        early = found.reaped_late + punctuality.exit
        return -early, max(FLOOR_OF_DROP, OF_EXIT * punctuality.exit, (min_margin or 0.0) - early)
    least = punctuality.exit + FLOOR if min_margin is None else min_margin
    return punctuality.offset, least
