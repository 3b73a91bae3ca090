"""A message: what it is made of, how it is packed, and what happens when it ends."""
