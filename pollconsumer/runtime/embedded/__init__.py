"""The embedded server: a Valkey of the user's own, shared by all of his processes."""
