"""A Django site: how a launch sets it up, where its configuration is, and its application."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import django
from django.apps import apps
from django.conf import settings as django_settings
from django.db import connections

from pollconsumer.interface.api.app import PollConsumer, calls_of
from pollconsumer.interface.logs.logs import kept
from pollconsumer.interface.settings.load import DJANGO_VARIABLE, Beside, beside_module
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.user_imports import importing


def beside_site() -> Beside | None:
    """Where the search for the site's configuration begins: in BASE_DIR; if that is not set, beside the site's settings
    module."""
    module = sys.modules.get(str(getattr(django_settings, "SETTINGS_MODULE", None)))
    found = beside_module(getattr(module, "__file__", None))
    base = getattr(django_settings, "BASE_DIR", None)
    if base is None:
        return found
    directory = Path(base).absolute()
    return Beside((directory,), directory.stat().st_uid if found is None else found.owner)


def application(**options: Any) -> PollConsumer:
    """An application with the site's configuration. ``options``: those of `PollConsumer`."""
    app = PollConsumer(**options)
    calls_of(app).beside = beside_site
    return app


def import_site(site: str, settings: Settings) -> None:
    """Set up the site whose settings module is ``site``. If one of its TASKS backends is ours, register its tasks as
    handlers. ConfigurationError if something cannot be imported."""
    is_new = not apps.ready  # otherwise a test runs launches in memory
    with importing(DJANGO_VARIABLE, site), kept():
        if is_new:
            django.setup()
        if getattr(django_settings, "TASKS", None):
            from pollconsumer.django.task_handlers import register_tasks  # it needs the framework

            register_tasks(settings)
        if is_new:
            connections.close_all()  # connections that imports opened belong to no message
