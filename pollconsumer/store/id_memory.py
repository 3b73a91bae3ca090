"""How long, and how many, ids of forgotten messages are kept: see ``lua/parts/id_memory.lua``."""

ID_MEMORY_MS = 600_000
"""Minimum time for which ids of forgotten messages are remembered."""
MOST_REMEMBERED = 3_000_000
"""Ids per generation, of two: if more are forgotten in that time, they are kept for less."""
