"""Messages and batches as models without tables, for the admin and for permissions."""

from __future__ import annotations

from django.db import models

from pollconsumer.core.notation.instants import moment_of
from pollconsumer.store.reading.batch_reader import BatchStatus
from pollconsumer.store.reading.inspector import entered_at
from pollconsumer.store.reading.messages import Message


class QueueMessage(models.Model):
    """A message, with the values that the store had when it was read."""

    key = models.CharField(primary_key=True, max_length=1000)
    message_id = models.TextField("id")
    queue = models.TextField()
    handler = models.TextField()
    state = models.TextField()
    since = models.DateTimeField(null=True)
    due_at = models.DateTimeField("due", null=True)
    priority = models.IntegerField()
    attempts = models.IntegerField()
    redriven = models.IntegerField()
    payload = models.JSONField(null=True)
    headers = models.JSONField()
    last_error = models.TextField(null=True)
    traceback = models.TextField(null=True)
    result = models.JSONField(null=True)

    class Meta:
        managed = False
        default_permissions = ("view", "change")
        verbose_name = "message"

    def __str__(self) -> str:
        return self.message_id

    @classmethod
    def of(cls, message: Message) -> QueueMessage:
        times = message.timestamps
        same = ("queue", "handler", "priority", "attempts", "payload", "last_error", "traceback", "result")
        return cls(
            key=f"{message.queue}/{message.id}",
            message_id=message.id,
            state=message.state.value,
            since=moment_of(entered_at(message)),
            due_at=times.next_attempt_at or times.due_at,
            redriven=message.generation,
            headers=dict(message.headers),
            **{name: getattr(message, name) for name in same},
        )


class QueueBatch(models.Model):
    """A batch, with the values that the store had when it was read."""

    key = models.CharField(primary_key=True, max_length=1000)
    batch_id = models.TextField("id")
    queue = models.TextField("queue")
    state = models.TextField()
    total = models.IntegerField()
    outstanding = models.IntegerField()
    completed = models.IntegerField()
    dead = models.IntegerField()
    cancelled = models.IntegerField()
    expired = models.IntegerField()
    created_at = models.DateTimeField("created", null=True)
    ended_at = models.DateTimeField("ended", null=True)
    callbacks = models.JSONField()

    class Meta:
        managed = False
        default_permissions = ()
        verbose_name = "batch"
        verbose_name_plural = "batches"

    def __str__(self) -> str:
        return self.batch_id

    @classmethod
    def of(cls, batch: BatchStatus) -> QueueBatch:
        same = ("queue", "state", "total", "outstanding", "completed", "dead", "cancelled", "expired")
        return cls(
            key=f"{batch.queue}/{batch.id}",
            batch_id=batch.id,
            created_at=batch.created_at,
            ended_at=batch.ended_at,
            callbacks={each.name: [each.handler, each.state] for each in batch.callbacks},
            **{name: getattr(batch, name) for name in same},
        )
