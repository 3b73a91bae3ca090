"""How messages without anything unusual are handled, without a turn of the launch's loop for each."""
