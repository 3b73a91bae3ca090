"""A store on several nodes: a cluster on loopback, and trials of whole installations on it.

``pytest tests/store --cluster`` runs the tests of the store on one; ``python -m tests.cluster`` is the long form.
"""
