"""Batches under real kills."""
