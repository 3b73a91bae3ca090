"""Running a handler: its function, arguments, context, hooks, timeout."""
