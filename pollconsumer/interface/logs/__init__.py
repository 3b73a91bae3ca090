"""What a process says: records, their form, the damping of repetitions."""
