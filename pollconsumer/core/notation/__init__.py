"""How values are written: instants, durations, cron expressions, JSON, escaped and redacted text."""
