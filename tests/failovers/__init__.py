"""A store whose primary is replaced: servers and Sentinels on loopback, and installations on them while it happens.

``servers`` are what tests of the store use, too, all of them with ``pytest tests/store --sentinel``; ``python -m
tests.failovers`` is the long form.
"""
