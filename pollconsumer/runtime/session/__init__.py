"""What the consumer exchanges with the store: reservations, settlements, contexts, waiting."""
