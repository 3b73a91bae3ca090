"""Memory that a launch shares with its heartbeat: what is in hand, how far it has come, what is to stop."""
