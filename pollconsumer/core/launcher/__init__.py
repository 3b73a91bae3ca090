"""Which launcher starts launches, what it does at a tick, and how punctual they are."""
