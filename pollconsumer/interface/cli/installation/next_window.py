"""Predicts a role's next launches for ``pollconsumer check``: their start, their launcher, their window."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pollconsumer.core.choices import HandOff, LauncherRule
from pollconsumer.core.launcher.detection import BY_PRODUCERS, Found, given_launcher, recorded_launcher
from pollconsumer.core.launcher.observed import Observed, read_observed
from pollconsumer.core.launcher.past import past_launch
from pollconsumer.core.launcher.punctuality import allowance, learned
from pollconsumer.core.notation.instants import iso
from pollconsumer.core.notation.text import counted
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.core.window import predict_stop
from pollconsumer.interface.assembly.launch_roles import launcher_of
from pollconsumer.interface.settings.model import ConsumerSettings, MoverSettings
from pollconsumer.runtime.launch.next_launches import next_launches

LAUNCHES_SHOWN = 5
RULES = {
    LauncherRule.PARALLEL: "a new launch may start beside a running one",
    LauncherRule.QUEUE: "a new launch starts when the running one has ended",
    LauncherRule.DROP: "no launch is started while one is running",
}


def next_window(
    role: ConsumerSettings | MoverSettings,
    now: datetime,
    past: list[dict[str, Any]],
    longest: float,
    schedule: str | None,
) -> dict[str, Any]:
    """The window of the launch that the platform starts next, or now without a schedule. ``past``: earlier launches,
    newest first. They show what the launcher is: ``check`` itself is started by a person. ``longest``: the seconds
    that a message which begins at the end of the window may be handled. ``schedule``: that of the launches."""
    launches = _launches(schedule, now) if schedule else []
    start = datetime.fromisoformat(launches[0]) if launches else now
    ahead = next_launches(schedule, start) if schedule else None
    found, observed = _launcher_of(role, past)
    launches_before = [past_launch(each) for each in past]
    punctuality = learned(launches_before, found.rule)
    late, margin = allowance(found, punctuality, role.min_margin)
    handoff = found.rule.handoff(role.handoff)
    begin = 0.0 if ahead is None else punctuality.offset
    offset_known = any(each.offset is not None for each in launches_before)
    exit_known = any(each.exit is not None for each in launches_before)
    stop = predict_stop(begin, role.timeout, ahead, handoff, late)
    window = stop - begin
    return {
        "launcher": found.rule,
        "platform": found.platform or None,
        "observed": {"rule": observed.rule, "times": observed.times} if observed.times else None,
        "launch_offset_seconds": punctuality.offset if offset_known else None,
        "exit_seconds": punctuality.exit if exit_known else None,
        "margin_seconds": min(margin, window / 2) if role.min_margin is None else margin,
        "schedule": schedule,
        "next_launches": launches,
        "window_seconds": window,
        "stop_before": _iso(start + timedelta(seconds=stop)),
        "hard_end": _iso(start + timedelta(seconds=stop + longest + role.grace)),
    }


def _launches(schedule: str, now: datetime) -> list[str]:
    """The next launches of a schedule."""
    launches = []
    for _ in range(LAUNCHES_SHOWN):
        now += timedelta(seconds=next_launches(schedule, now)[0])
        launches.append(_iso(now))
    return launches


def _launcher_of(role: ConsumerSettings | MoverSettings, past: list[dict[str, Any]]) -> tuple[Found, Observed]:
    """What launches the role: found here, else by an earlier launch; where neither knows, as it was observed to act."""
    found = launcher_of(role)
    if not found.platform:
        known = (
            recorded_launcher(each["platform"], each["launcher"])
            for each in past
            if each["platform"] not in ("", *BY_PRODUCERS)
        )
        found = given_launcher(role.launcher, next(known, found))
    if not found.is_watched or role.launcher is not LauncherRule.AUTO or not past:
        return found, Observed()
    observed = read_observed(past[0].get("observed"))
    return found._replace(rule=observed.decides), observed


def described_window(window: dict[str, Any], chosen: HandOff, margin: float | None) -> list[tuple[str, str]]:
    """The rows for people of what `next_window` returned. ``chosen``: the hand-off of the settings. ``margin``: the
    usual one of earlier launches; None if unknown: then the least."""
    before = window["margin_seconds"] if margin is None else margin
    if window["launcher"].handoff(chosen).on_call:
        before = 0.0  # a launch works on until the next one calls
    last = datetime.fromisoformat(window["stop_before"]) - timedelta(seconds=before)
    limit = format_duration(window["window_seconds"])
    launches = "  ".join(map(_local, window["next_launches"])) or f"none; a launch runs for timeout ({limit})"
    return [
        ("launcher", _launcher(window)),
        *_unused(chosen, window["launcher"]),
        *_timing(window),
        ("window", limit),
        ("next launches" if window["next_launches"] else "schedule", launches),
        ("takes no new message after", _local(last.isoformat())),
        ("killed if it still runs at", _local(window["hard_end"])),
    ]


def _launcher(window: dict[str, Any]) -> str:
    found = window["platform"] or "not known yet"
    if seen := window["observed"]:
        found = f"seen {counted(seen['times'], 'time')}"
    return f"{found}; {RULES[window['launcher']]}"


def _unused(chosen: HandOff, rule: LauncherRule) -> list[tuple[str, str]]:
    """A row with the reason, if the ``chosen`` hand-off is not in force."""
    if rule.handoff(chosen) is chosen:
        return []
    return [("handoff", f"{chosen} is set and not used: {RULES[rule]}; where that is wrong, set launcher to parallel")]


def _timing(window: dict[str, Any]) -> list[tuple[str, str]]:
    """A row with what was learned of earlier launches, if anything."""
    offset, leaving = window["launch_offset_seconds"], window["exit_seconds"]
    parts = [] if offset is None else [f"starts {max(0.0, offset):.1f}s after its tick"]
    parts += [] if leaving is None else [f"exits within {leaving:.1f}s"]
    return [("timing", ", ".join(parts))] if parts else []


def _iso(moment: datetime) -> str:
    return iso(round(moment.timestamp() * 1000))


def _local(moment: str) -> str:
    """An instant of the report by the clock of this machine."""
    return datetime.fromisoformat(moment).astimezone().isoformat(timespec="seconds")
