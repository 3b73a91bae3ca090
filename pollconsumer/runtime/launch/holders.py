"""Holders of a lease, whose descriptions a launch reads that finds it held (see `Identity.description`).

A description may be corrupt, or of another version, and then says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pollconsumer.core.notation import strict_json
from pollconsumer.runtime.launch.host import Host
from pollconsumer.runtime.launch.shared_memory.launch_progress import Identity


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


def projects_beside(identity: Identity, holders: Iterable[bytes]) -> list[str]:
    """The configurations of other projects' holders on the same host. Another project has its configuration at another
    path and other handlers; a new version of a project has one of the two in common with the old one."""
    found = map(_read, holders)
    return sorted({each["config"] for each in found if _is_of_another(each, identity)})


def _is_of_another(found: dict[str, Any], identity: Identity) -> bool:
    config, handlers = found.get("config"), found.get("handlers")
    known = isinstance(config, str) and isinstance(handlers, str) and config and handlers
    return bool(
        known and found.get("host") == identity.host and config != identity.config and handlers != identity.handlers
    )


def _read(holder: bytes) -> dict[str, Any]:
    try:
        found = strict_json.parse(holder)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
