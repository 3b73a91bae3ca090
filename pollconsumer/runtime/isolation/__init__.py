"""Isolated handlers: the launch's side."""
