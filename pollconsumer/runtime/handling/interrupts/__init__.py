"""Interrupting handlers: at their timeouts, or on request."""
