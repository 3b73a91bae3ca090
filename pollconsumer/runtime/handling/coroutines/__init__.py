"""The event loop of coroutines."""
