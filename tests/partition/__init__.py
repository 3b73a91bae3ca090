"""``python -m tests.partition``: hosts, one more than may work, of which one that holds a lease is harmed."""
