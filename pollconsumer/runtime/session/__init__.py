"""The consumer's exchange with the store: reservations, settlements, contexts of handlers, waits."""
