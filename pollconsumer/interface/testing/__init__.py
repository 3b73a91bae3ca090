"""The real scripts, mover and consumer, on a store in memory and under a clock that a test moves."""
