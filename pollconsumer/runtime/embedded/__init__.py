"""The embedded server: a Valkey per user, shared by all processes of the user."""
