"""How long, and how many, ids of forgotten messages are kept: see ``lua/parts/id_memory.lua``."""

ID_MEMORY_MS = 600_000
"""So long at least the ids of forgotten messages are kept: until then, none of them makes a second message."""
MOST_REMEMBERED = 3_000_000
"""Ids in each of two generations: where more are forgotten in that time, they are kept for less."""
