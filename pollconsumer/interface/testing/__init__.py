"""Runs the real scripts, mover and consumer on a store in memory, by a clock that a test advances."""
