"""Watches an installation: what `doctor` finds, and metrics."""
