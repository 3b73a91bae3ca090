"""The files of each platform."""
