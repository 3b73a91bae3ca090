"""``python -m tests.upgrade``: two versions share a store under load and kills, one drains it, then the other."""
