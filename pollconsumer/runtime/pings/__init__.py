"""Monitors, told of launches and of occurrences."""
