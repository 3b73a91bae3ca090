"""Metrics: collecting them from the store, printing them as text, serving them over HTTP."""
