"""The processes of isolated handlers: their start, their main function."""
