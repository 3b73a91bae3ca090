"""The embedded server: one Valkey server for each user, shared by all of the user's processes."""
