"""The log: records, their form, and the damping of repeated ones."""
