"""An order, and the message that confirms it."""

from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=100)
    email = models.EmailField()
    ordered_at = models.DateTimeField(auto_now_add=True)
    confirmation = models.CharField(max_length=64, editable=False)
    """Id of the message that sends the mail."""
