"""Measurements. Each is a program: ``python -m benchmarks.NAME``. Compare figures of one run only."""
