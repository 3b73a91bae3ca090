"""The spool: messages that could not reach the store, in files that a launch takes in."""
