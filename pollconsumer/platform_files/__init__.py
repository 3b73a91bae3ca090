"""The files with which platforms launch pollconsumer with a given configuration."""
