"""The operating system: processes, signals, threads, files, limits."""
