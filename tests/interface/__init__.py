"""What users call, write and read: the API, settings, commands."""
