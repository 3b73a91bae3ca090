"""``python -m tests.moving``: a store is moved while producers and launches go on."""
