"""Settings of the site."""
