"""Simulates many launches in one process, in virtual time: the real runtime, store and scripts, on simulated hosts."""
