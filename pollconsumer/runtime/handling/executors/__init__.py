"""Where handlers run: in the launch's thread with one slot, on threads or an event loop with more."""
