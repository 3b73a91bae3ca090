"""Messages and batches as models without tables: what the admin and permissions speak of."""

from __future__ import annotations

from django.db import models


class QueueMessage(models.Model):
    """A message. Its key is its queue and its id, with a slash in between."""

    key = models.CharField(primary_key=True, max_length=1000)

    class Meta:
        managed = False
        default_permissions = ("view", "change")
