"""The settings as a model of pydantic-settings."""
