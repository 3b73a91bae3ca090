"""A monitoring service: see README.md."""
