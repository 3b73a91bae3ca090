"""Who may look at a site's messages, and act on them: staff with permissions of the site."""

from __future__ import annotations

from typing import Any

VIEW, ACT = "pollconsumer.view_queuemessage", "pollconsumer.change_queuemessage"
"""Permissions to look, and to cancel, redrive, pause, purge, trigger. Superusers have both; others can be given them
where ``pollconsumer.django`` is among ``INSTALLED_APPS``."""


def may(user: Any, permission: str) -> bool:
    """Whether a user of the site may do what ``permission`` allows."""
    return bool(user.is_active and user.is_staff and user.has_perm(permission))
