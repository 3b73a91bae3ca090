"""What a launch is put together from: settings become handlers, programs, recurrences, options."""
