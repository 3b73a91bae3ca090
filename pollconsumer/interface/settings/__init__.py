"""Settings: their model, rules and sources."""
