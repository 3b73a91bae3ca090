"""Long runs under random faults, by a command of their own: ``python -m tests.faults.run``."""
