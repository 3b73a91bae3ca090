"""Looks at payloads by the annotations of the handler that is to be given them."""
