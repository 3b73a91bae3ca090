"""What trials have in common: an installation, launches that follow each other, a handler and a producer that record
what they do, and what follows from their records. A trial is a program of the folders beside this one."""
