"""What is reported of launches and messages: events, progress, pings of monitors, repeated warnings."""
