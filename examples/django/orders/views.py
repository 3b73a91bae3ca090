"""A form for an order, and a page that shows what became of its confirmation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction
from django.forms import modelform_factory
from django.shortcuts import get_object_or_404, redirect, render

from .models import Order
from .tasks import TaskResultDoesNotExist, confirm

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

OrderForm = modelform_factory(Order, fields=["item", "email"])


def new(request: HttpRequest) -> HttpResponse:
    form = OrderForm(request.POST or None)
    if not form.is_valid():
        return render(request, "orders/new.html", {"form": form})
    with transaction.atomic():
        order = form.save()
        order.confirmation = confirm.enqueue(order.pk).id  # sent when this block has been committed
        order.save()
    return redirect("order", order.pk)


def order(request: HttpRequest, number: int) -> HttpResponse:
    found = get_object_or_404(Order, pk=number)
    try:
        sent = confirm.get_result(found.confirmation)
    except TaskResultDoesNotExist:  # a mail that was sent is forgotten after a day
        sent = None
    return render(request, "orders/order.html", {"order": found, "sent": sent})
