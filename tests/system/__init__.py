"""Whole launches: real processes, real servers, real signals."""
