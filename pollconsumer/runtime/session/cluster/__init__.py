"""Dealings with the nodes of a cluster."""
