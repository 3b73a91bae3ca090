"""What pages show as pictures."""
