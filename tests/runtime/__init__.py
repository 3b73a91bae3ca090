"""The parts of a launch, most of them in virtual time."""
