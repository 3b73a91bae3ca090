"""Batches and chains, as producers see them."""
