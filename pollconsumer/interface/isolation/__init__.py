"""The processes of isolated handlers: what their launch tells them, and what they run."""
