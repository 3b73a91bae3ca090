"""Commands for messages, their queues and recurrences."""
