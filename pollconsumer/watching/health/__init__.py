"""What is wrong with a running system: facts in, findings out."""
