"""A Django site whose only background machinery is a crontab line: see README.md."""
