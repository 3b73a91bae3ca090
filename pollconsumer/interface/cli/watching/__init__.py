"""Commands that show what goes on, and what is wrong."""
