"""How values are written: instants, spans of time, cron expressions, JSON; what of a text is escaped or redacted."""
