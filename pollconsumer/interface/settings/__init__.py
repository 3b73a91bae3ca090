"""Settings: what they are, what they may be, where they come from."""
