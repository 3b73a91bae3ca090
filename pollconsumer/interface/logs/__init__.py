"""The log: how records are written, and how repeated ones are damped."""
