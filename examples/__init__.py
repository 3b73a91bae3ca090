"""Handlers to start from."""
