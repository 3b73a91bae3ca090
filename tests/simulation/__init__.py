"""Installations of many launches in virtual time, with everything that can go wrong; a seed repeats each of them."""
