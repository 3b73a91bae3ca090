"""Bulk handlers: their parameters, and one call with several messages."""
