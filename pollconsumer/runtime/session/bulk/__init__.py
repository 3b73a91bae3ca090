"""Bulk handlers in a launch: which messages go with one call, and when that begins."""
