"""``pollconsumer.django`` as one of ``INSTALLED_APPS``: it has permissions, and pages of the admin."""

from __future__ import annotations

from django.apps import AppConfig


class QueueConfig(AppConfig):
    name = "pollconsumer.django"
    label = "pollconsumer"
    verbose_name = "Queue"
    default_auto_field = "django.db.models.BigAutoField"
