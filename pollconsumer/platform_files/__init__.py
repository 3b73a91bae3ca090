"""The files by which each platform launches pollconsumer with a given configuration."""
