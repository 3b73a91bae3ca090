"""``python -m tests.partition``: two hosts, of which the one that holds the lease is frozen, cut off, or gone."""
