"""Programs as handlers."""
