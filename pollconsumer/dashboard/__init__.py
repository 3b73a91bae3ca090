"""Web pages about an installation: served by `dashboard`, or written as files. Imported only where one is wanted."""
