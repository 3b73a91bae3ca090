"""Commands that set an installation up: its configuration, its platform, its store."""
