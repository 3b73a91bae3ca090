"""Orders, their confirmation by mail, and a nightly report."""
