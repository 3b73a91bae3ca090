"""A launch, from its start to its exit code: lease, heartbeat, signals, the end."""
