"""Builds launches from settings: handlers, programs, recurrences, options."""
