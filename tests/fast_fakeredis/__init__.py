"""fakeredis with a shorter path to its commands, for the simulation and the tests of the store."""
