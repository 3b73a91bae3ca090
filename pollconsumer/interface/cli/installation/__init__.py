"""Commands about an installation: its configuration, its launches, its store."""
