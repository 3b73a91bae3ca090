"""Recurrences put by programs."""
