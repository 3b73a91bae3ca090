"""A launch's Django site: its setup, and its tasks as handlers."""

from __future__ import annotations

import django
from django.apps import apps
from django.conf import settings as django_settings
from django.db import connections

from pollconsumer.interface.logs.logs import kept
from pollconsumer.interface.settings.load import DJANGO_VARIABLE
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.user_imports import importing


def import_site(site: str, settings: Settings) -> None:
    """Set up the site with the settings module ``site``, and, if it has a backend of ours, register its tasks.
    ConfigurationError for what cannot be imported."""
    is_new = not apps.ready  # else a test runs launches in memory
    with importing(DJANGO_VARIABLE, site), kept():
        if is_new:
            django.setup()
        if getattr(django_settings, "TASKS", None):
            from pollconsumer.django.task_handlers import register_tasks  # it needs the framework

            register_tasks(settings)
        if is_new:
            connections.close_all()  # what imports opened belongs to no message
