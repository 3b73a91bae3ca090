"""What launches on a platform would do, without a store: launchers, drawn durations, a launch's loop, figures."""
