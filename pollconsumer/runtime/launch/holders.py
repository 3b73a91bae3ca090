"""Holders of a lease, whose descriptions a launch reads that finds it held (see `LaunchProgress.description`).

A description may be corrupt, or of another version, and then says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pollconsumer.core.notation import strict_json
from pollconsumer.runtime.launch.host import Host


def is_gone(holder: bytes, host: Host) -> bool:
    """Whether the launch and the heartbeat of ``holder`` are known to have ended."""
    found = _read(holder)
    namespace, births = found.get("namespace"), found.get("births")
    if not isinstance(namespace, str) or not isinstance(births, dict):
        return False
    return all(isinstance(birth, str) for birth in births.values()) and host.all_gone(namespace, births)


def place_of(holder: bytes) -> str:
    found = _read(holder)
    return f"pid {found.get('pid', '?')} on {found.get('host', '?')}"


def projects_beside(facts: Mapping[str, Any], holders: Iterable[bytes]) -> list[str]:
    """The configurations of other projects' holders on the host of the launch with these ``facts``. Another project has
    its configuration at another path and other handlers; a new version of a project has one of the two in common with
    the old one."""
    found = map(_read, holders)
    return sorted({each["config"] for each in found if _is_of_another(each, facts)})


def _is_of_another(found: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    config, handlers = found.get("config"), found.get("handlers")
    known = isinstance(config, str) and isinstance(handlers, str) and config and handlers
    return bool(
        known and found.get("host") == ours["host"] and config != ours["config"] and handlers != ours["handlers"]
    )


def _read(holder: bytes) -> dict[str, Any]:
    try:
        found = strict_json.parse(holder)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
