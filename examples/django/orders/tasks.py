"""Work that no visitor waits for. A launch imports this module, as it does that of every installed app."""

from __future__ import annotations

from datetime import timedelta

from django.core.mail import mail_managers, send_mail
from django.utils import timezone

from .models import Order

try:
    from django.tasks import task
    from django.tasks.exceptions import TaskResultDoesNotExist
except ModuleNotFoundError:  # before Django 6
    from django_tasks import task
    from django_tasks.exceptions import TaskResultDoesNotExist

__all__ = ["TaskResultDoesNotExist", "confirm", "report"]


@task
def confirm(number: int) -> str:
    """Sends the mail again if its launch is killed before it has reported: at least once."""
    order = Order.objects.get(pk=number)
    send_mail(f"Order {number}", f"You have ordered {order.item}.", None, [order.email])
    return order.email


@task(queue_name="reports")
def report() -> int:
    """Of each night: the recurrence in config.toml."""
    orders = Order.objects.filter(ordered_at__gte=timezone.now() - timedelta(days=1))
    mail_managers("Orders of the day", "\n".join(f"{order.pk}: {order.item}" for order in orders))
    return len(orders)
