"""The decisions: no server, no clock, no process."""
