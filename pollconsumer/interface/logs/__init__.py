"""The log: records, their form, the damping of repeated ones."""
